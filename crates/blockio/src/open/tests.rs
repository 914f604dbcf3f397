//! The decisions of opening that need no disk.

use super::*;

#[test]
fn an_engine_is_taken_if_it_works() {
    let works = || Ok(());
    let refused = || Err(libc::EPERM);
    assert_eq!(choose(None, works), Engine::Uring);
    assert_eq!(choose(Some(Engine::Uring), works), Engine::Uring);
    assert_eq!(choose(Some(Engine::Uring), refused), Engine::Pread);
    assert_eq!(choose(None, refused), Engine::Pread);
    assert_eq!(choose(Some(Engine::Pread), || panic!("not asked")), Engine::Pread);
    assert_eq!(engine_named("uring"), Some(Engine::Uring));
    assert_eq!(engine_named("pread"), Some(Engine::Pread));
    assert_eq!(engine_named("Uring"), None);
}

#[test]
fn sectors_up_to_ours_are_taken() {
    let path = Path::new("/dev/some");
    for bytes in [512, 1024, 2048, 4096] {
        check_sector(path, bytes).unwrap();
    }
    for bytes in [4097, 8192, 65536] {
        let refused = check_sector(path, bytes).unwrap_err();
        assert!(refused.to_string().contains("reformat"), "{refused}");
    }
}

#[test]
fn system_errors_become_what_the_user_can_act_on() {
    let path = Path::new("/dev/some");
    let text = |error| open_error(path, error).to_string();
    assert!(text(Errno::ACCESS).contains("group disk"));
    assert!(text(Errno::PERM).contains("group disk"));
    assert!(text(Errno::BUSY).contains("mounted"));
    assert!(text(Errno::ROFS).contains("write-protected"));
    assert!(text(Errno::NOMEDIUM).contains("attached"));
    assert!(text(Errno::LOOP).starts_with("/dev/some: cannot be opened"));
}

#[test]
fn what_others_can_exchange_is_looked_at_and_not_used() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let image = home.path().join("image");
    create_image(&image, 256).unwrap();
    open(&image, Access::Exclusive).unwrap();
    std::fs::set_permissions(home.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let refused = open(&image, Access::Exclusive).unwrap_err();
    assert!(matches!(refused, OpenError::Exchangeable { .. }), "{refused}");
    open(&image, Access::Inspect).unwrap();
}
