//! The client's part for exports.

use super::{Answer, Client, escaped};
use crate::{ConnectAdvice, ConnectQuery, ShareInfo, ShareQuery, ShareWhy};

impl Client {
    /// Lists exports.
    pub async fn shares(&self) -> Answer<Vec<ShareInfo>> {
        self.get("/shares").await
    }

    /// A host's rights at a path, and the reasons.
    pub async fn share_why(&self, query: &ShareQuery) -> Answer<ShareWhy> {
        let (host, path) = (escaped(&query.host), escaped(&query.path));
        self.get(&format!("/shares/why?host={host}&path={path}")).await
    }

    /// Returns the lines to type on a hypervisor.
    pub async fn connect(&self, query: &ConnectQuery) -> Answer<ConnectAdvice> {
        let (dataset, hypervisor) = (escaped(&query.dataset), query.hypervisor.name());
        let host = query.host.as_deref().map(|host| format!("&host={}", escaped(host)));
        let host = host.unwrap_or_default();
        self.get(&format!("/connect?dataset={dataset}&hypervisor={hypervisor}{host}")).await
    }
}
