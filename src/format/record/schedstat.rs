//! SCHEDSTAT_CPU and SCHEDSTAT_DOMAIN records are copies of /proc/schedstat.

use super::reader::Reader;
use crate::{FaultCode, Value};

/// u64 timestamp (jiffies), u32 cpu, u16 version of /proc/schedstat, u16 domain; returns the version.
fn schedstat(d: &mut Reader<'_>, domain: bool) -> Option<u16> {
    d.number::<u64>("timestamp")?;
    d.number::<u32>("cpu")?;
    let version = d.number::<u16>("version")?;
    if domain {
        d.number::<u16>("domain")?;
    } else {
        d.skip("padding", 2)?;
    }
    if !(15..=17).contains(&version) {
        d.add_issue(FaultCode::SchedstatVersion, format!("unknown version {version}"));
        return None;
    }
    Some(version)
}

pub(crate) fn decode_cpu(d: &mut Reader<'_>) -> Option<()> {
    schedstat(d, false)?;
    for name in ["yld_count", "array_exp", "sched_count", "sched_goidle", "ttwu_count", "ttwu_local"] {
        d.number::<u32>(name)?;
    }
    for name in ["rq_cpu_time", "run_delay", "pcount"] {
        d.number::<u64>(name)?;
    }
    Some(())
}

/// u32 counters as in Documentation/scheduler/sched-stats.rst: a set for each of three CPU states, then the
/// domain's.
pub(crate) fn decode_domain(d: &mut Reader<'_>) -> Option<()> {
    let version = schedstat(d, true)?;
    let mut states =
        if version == 15 { ["idle", "busy", "newidle"] } else { ["busy", "idle", "newidle"] }.into_iter();
    d.list("load_balance", 3u64, if version < 17 { 32 } else { 44 }, |d| {
        d.note("cpu_is", Value::Name(states.next()?.into()));
        for name in ["lb_count", "lb_balanced", "lb_failed"] {
            d.number::<u32>(name)?;
        }
        let imbalances: &[_] = match version {
            15 | 16 => &["lb_imbalance"],
            _ => &["lb_imbalance_load", "lb_imbalance_util", "lb_imbalance_task", "lb_imbalance_misfit"],
        };
        for name in
            imbalances.iter().copied().chain(["lb_gained", "lb_hot_gained", "lb_nobusyq", "lb_nobusyg"])
        {
            d.number::<u32>(name)?;
        }
        Some(())
    })?;
    for name in [
        "alb_count", "alb_failed", "alb_pushed", "sbe_count", "sbe_balanced", "sbe_pushed", "sbf_count",
        "sbf_balanced", "sbf_pushed", "ttwu_wake_remote", "ttwu_move_affine", "ttwu_move_balance",
    ] {
        d.number::<u32>(name)?;
    }
    Some(())
}
