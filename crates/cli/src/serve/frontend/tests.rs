use super::*;

#[test]
fn the_pool_that_is_served_stays_served() {
    let both = [("dozer", true), ("tank", true)];
    assert_eq!(choose(&both, None), Some("dozer"));
    assert_eq!(choose(&both, Some("tank")), Some("tank"));
    assert_eq!(choose(&both, Some("gone")), Some("dozer"));
}

#[test]
fn a_pool_that_exports_something_goes_first() {
    assert_eq!(choose(&[("dozer", false), ("tank", true)], None), Some("tank"));
    assert_eq!(choose(&[("dozer", false), ("tank", true)], Some("dozer")), Some("tank"));
    assert_eq!(choose(&[("dozer", false), ("tank", false)], Some("tank")), Some("tank"));
    assert_eq!(choose(&[("dozer", false), ("tank", false)], None), Some("dozer"));
    assert_eq!(choose(&[], Some("tank")), None);
}
