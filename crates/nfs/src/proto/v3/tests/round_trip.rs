//! Both directions are inverse, and decoding is total, for every procedure.

use proptest::option::of;
use proptest::prelude::*;

use super::strategy::{args, attributes, bytes, entry, entry_plus, fh, res, wcc};
use super::*;

/// Checks that `value` survives encoding and decoding.
fn survives<T>(value: &T) -> Result<(), TestCaseError>
where
    T: Encode + for<'a> Decode<'a> + PartialEq + std::fmt::Debug,
{
    let wire = encoded(value);
    prop_assert_eq!(wire.len() % 4, 0);
    let back = decoded::<T>(&wire);
    prop_assert_eq!(back.as_ref(), Ok(value));
    Ok(())
}

/// Reads `wire` as the arguments of every procedure and as every result.
fn read_as_anything(wire: &[u8]) {
    let from = || Decoder::new(wire);
    for &procedure in Procedure3::ALL {
        let _ = Args3::decode(procedure, &mut from());
    }
    let _ = Write3Head::decode(&mut from());
    let _ = Getattr3Res::decode(&mut from());
    let _ = Setattr3Res::decode(&mut from());
    let _ = Lookup3Res::decode(&mut from());
    let _ = Access3Res::decode(&mut from());
    let _ = Readlink3Res::decode(&mut from());
    let _ = Read3Res::decode(&mut from());
    let _ = Write3Res::decode(&mut from());
    let _ = Create3Res::decode(&mut from());
    let _ = Rename3Res::decode(&mut from());
    let _ = Link3Res::decode(&mut from());
    let _ = Readdir3Res::decode(&mut from());
    let _ = Readdirplus3Res::decode(&mut from());
    let _ = Fsstat3Res::decode(&mut from());
    let _ = Fsinfo3Res::decode(&mut from());
    let _ = Pathconf3Res::decode(&mut from());
    let _ = Commit3Res::decode(&mut from());
}

proptest! {
    #[test]
    fn arguments(args in args()) {
        let wire = encoded(&args);
        let mut from = Decoder::new(&wire);
        prop_assert_eq!(Args3::decode(args.procedure(), &mut from), Ok(args));
        prop_assert!(from.remaining().is_empty());
    }

    /// Arguments cut short are an error, unless only padding is missing; nothing panics.
    #[test]
    fn arguments_cut_short(args in args()) {
        let wire = encoded(&args);
        for len in 0..wire.len() {
            let mut from = Decoder::new(&wire[..len]);
            match Args3::decode(args.procedure(), &mut from) {
                Ok(cut) => {
                    prop_assert!(len + 3 >= wire.len(), "{len} of {} bytes sufficed", wire.len());
                    prop_assert_eq!(cut, args);
                }
                Err(XdrError::Truncated { offset, missing }) => {
                    prop_assert!(offset <= len && offset + missing <= wire.len());
                }
                Err(other) => prop_assert!(false, "{other} for a cut"),
            }
        }
    }

    #[test]
    fn results_on_attributes(
        getattr in res(attributes(), Just(())),
        setattr in res(wcc(), wcc()),
        access in res((of(attributes()), any::<u32>()), of(attributes())),
    ) {
        survives::<Getattr3Res>(&getattr)?;
        survives::<Setattr3Res>(&setattr)?;
        let access = match access {
            Res3::Ok((obj_attributes, access)) => Res3::Ok(Access3ResOk { obj_attributes, access }),
            Res3::Fail { status, resfail } => Res3::Fail { status, resfail },
        };
        survives::<Access3Res>(&access)?;
    }

    #[test]
    fn results_on_data(
        attributes in of(attributes()),
        eof in any::<bool>(),
        data in bytes(),
        wcc in wcc(),
        count in any::<u32>(),
        verf in any::<[u8; 8]>(),
        stable in 0..3_u32,
    ) {
        let committed = StableHow::from_wire(stable).unwrap();
        survives(&Write3Res::Ok(Write3ResOk { file_wcc: wcc, count, committed, verf }))?;
        survives(&Commit3Res::Ok(Commit3ResOk { file_wcc: wcc, verf }))?;
        let head = Read3Head { file_attributes: attributes, eof };
        let offset = encoded(&attributes).len() + 16;
        let read = Read3Res::Ok(Read3ResOk { head, data: Span { offset, bytes: data } });
        let wire = encoded(&read);
        prop_assert_eq!(decoded::<Read3Res<'_>>(&wire), Ok(read));
        let link = Readlink3Res::Ok(Readlink3ResOk { symlink_attributes: attributes, data });
        let wire = encoded(&link);
        prop_assert_eq!(decoded::<Readlink3Res<'_>>(&wire), Ok(link));
    }

    #[test]
    fn results_on_names(
        object in fh(),
        obj in of(fh()),
        attributes in [of(attributes()), of(attributes())],
        wccs in [wcc(), wcc()],
    ) {
        let ([obj_attributes, dir_attributes], [dir_wcc, todir_wcc]) = (attributes, wccs);
        survives(&Lookup3Res::Ok(Lookup3ResOk { object, obj_attributes, dir_attributes }))?;
        survives(&Create3Res::Ok(Create3ResOk { obj, obj_attributes, dir_wcc }))?;
        survives(&Rename3Res::Ok(RenameWcc { fromdir_wcc: dir_wcc, todir_wcc }))?;
        let file_attributes = obj_attributes;
        survives(&Link3Res::Ok(LinkWcc { file_attributes, linkdir_wcc: dir_wcc }))?;
    }

    #[test]
    fn results_on_directories(
        dir_attributes in of(attributes()),
        cookieverf in any::<[u8; 8]>(),
        entries in prop::collection::vec(entry(), 0..6),
        plus in prop::collection::vec(entry_plus(), 0..6),
        eof in any::<bool>(),
    ) {
        let list = Readdir3Res::Ok(Readdir3ResOk { dir_attributes, cookieverf, entries, eof });
        let wire = encoded(&list);
        prop_assert_eq!(decoded::<Readdir3Res<'_>>(&wire), Ok(list));
        let entries = plus;
        let resok = Readdirplus3ResOk { dir_attributes, cookieverf, entries, eof };
        let list = Readdirplus3Res::Ok(resok);
        let wire = encoded(&list);
        prop_assert_eq!(decoded::<Readdirplus3Res<'_>>(&wire), Ok(list));
    }

    #[test]
    fn results_on_file_systems(
        obj_attributes in of(attributes()),
        large in any::<[u64; 7]>(),
        small in any::<[u32; 11]>(),
        bools in any::<[bool; 4]>(),
    ) {
        let [tbytes, fbytes, abytes, tfiles, ffiles, afiles, maxfilesize] = large;
        let [rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, seconds, nseconds, p, i] = small;
        let (invarsec, properties) = (i, p);
        survives(&Fsstat3Res::Ok(Fsstat3ResOk {
            obj_attributes, tbytes, fbytes, abytes, tfiles, ffiles, afiles, invarsec,
        }))?;
        let time_delta = Nfstime3 { seconds, nseconds };
        survives(&Fsinfo3Res::Ok(Fsinfo3ResOk {
            obj_attributes, rtmax, rtpref, rtmult, wtmax, wtpref, wtmult, dtpref, maxfilesize,
            time_delta, properties,
        }))?;
        let (linkmax, name_max) = (rtmax, wtmax);
        let [no_trunc, chown_restricted, case_insensitive, case_preserving] = bools;
        survives(&Pathconf3Res::Ok(Pathconf3ResOk {
            obj_attributes, linkmax, name_max, no_trunc, chown_restricted, case_insensitive,
            case_preserving,
        }))?;
    }

    /// Small words are lengths, bools and enum values that lead deep into every definition.
    #[test]
    fn anything_decodes_or_errs(
        start in prop::collection::vec(prop_oneof![3 => 0..4_u32, 1 => any::<u32>()], 0..80),
        rest in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        read_as_anything(&[words(&start), rest].concat());
    }

    /// Valid arguments with some words replaced.
    #[test]
    fn damaged_arguments(
        args in args(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut wire = encoded(&args);
        for (at, byte) in damage {
            if !wire.is_empty() {
                let at = at.index(wire.len());
                wire[at] = byte;
            }
        }
        read_as_anything(&wire);
    }
}
