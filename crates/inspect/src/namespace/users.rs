//! Properties that users made up: whole, under their own numbers, and not too many.

use std::collections::BTreeMap;

use aquifer_ondisk::types::{DatasetId, ObjectId};
use aquifer_ondisk::user_property::{UserPieces, check_user_properties};

use crate::finding::{At, Kind};
use crate::scan::Scan;

pub(super) fn check(scan: &mut Scan<'_>, users: &BTreeMap<DatasetId, UserPieces>) {
    for (dataset, pieces) in users {
        let mut invalid = |why: String| {
            scan.findings.add(Kind::ItemInvalid, At::object(*dataset, ObjectId(0)), || {
                format!("dataset {dataset}: {why}")
            });
        };
        let mut all = Vec::new();
        for (number, read) in pieces.properties() {
            match read {
                Ok(property) => all.push(property),
                Err(error) => invalid(format!("user property {number:012x}: {error}")),
            }
        }
        let texts = all.iter().map(|of| (of.name.as_str(), of.value.as_str()));
        if let Err(why) = check_user_properties(texts) {
            invalid(why.into());
        }
    }
}
