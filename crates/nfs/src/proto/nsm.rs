//! NSM version 1: the network status monitor (X/Open C702 chapter 12): hosts tell each other that
//! they have restarted.

use aquifer_rpc::xdr_table;

use super::nlm::Name;

/// Program number of NSM.
pub const PROGRAM: u32 = 100_024;
/// Version 1.
pub const VERSION: u32 = 1;

xdr_table! {
    /// The procedures.
    enum Procedure {
        /// SM_NULL.
        Null = 0,
        /// SM_STAT: asks whether a host can be monitored.
        Stat = 1,
        /// SM_MON: monitor a host.
        Mon = 2,
        /// SM_UNMON: stop monitoring a host.
        Unmon = 3,
        /// SM_UNMON_ALL.
        UnmonAll = 4,
        /// SM_SIMU_CRASH: act as after a restart.
        SimuCrash = 5,
        /// SM_NOTIFY: the caller has restarted.
        Notify = 6,
    }

    /// `enum res`.
    enum Res {
        /// stat_succ.
        Succ = 0,
        /// stat_fail.
        Fail = 1,
    }

    /// `struct sm_stat_res`.
    struct StatRes {
        /// Whether the host can be monitored.
        res_stat: Res,
        /// The state of this host's monitor.
        state: i32,
    }

    /// `struct stat_chge`, of SM_NOTIFY.
    struct StatChge<'a> {
        /// The host that has restarted.
        mon_name: Name<'a>,
        /// Its state now: odd while it is up.
        state: i32,
    }
}
