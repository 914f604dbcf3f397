//! Acts that wait for a second person.

use super::{Answer, Client};
use crate::{ConfirmAct, Confirmed, WaitingAct};

impl Client {
    /// Acts that wait for a second person.
    pub async fn confirmations(&self) -> Answer<Vec<WaitingAct>> {
        self.get("/confirmations").await
    }

    /// Carries out an act that waits.
    pub async fn confirm(&self, number: u64, request: &ConfirmAct) -> Answer<Confirmed> {
        self.post(&format!("/confirmations/{number}/confirm"), request).await
    }

    /// Drops an act that waits.
    pub async fn refuse(&self, number: u64, request: &ConfirmAct) -> Answer<WaitingAct> {
        self.post(&format!("/confirmations/{number}/refuse"), request).await
    }
}
