//! Txg records lie on two vdevs as soon as there are two.

use aquifer_ondisk::txg_record::RecordPointer;
use aquifer_sim::{Corruption, DiskConfig, Image, SimDisk};

use crate::hangs::{Machine, check, write};
use crate::shapes::{Shape, base, labels_of, named, vdev_of};

/// The roots that the newest uberblock of a disk names.
async fn roots(disk: &SimDisk) -> Vec<RecordPointer> {
    let labels = labels_of(&named(std::slice::from_ref(disk))).await.remove(0).unwrap();
    labels.uberblocks[0].roots.iter().flatten().copied().collect()
}

/// The vdevs on which the newest root lies.
async fn vdevs_of_newest(disk: &SimDisk) -> Vec<u16> {
    let newest = roots(disk).await[0];
    newest.copies().map(|place| place.vdev()).collect()
}

#[test]
fn records_lie_on_two_vdevs_once_there_are_two() {
    for (shape, before) in [(Shape::Single, vec![0, 0]), (Shape::Mirror, vec![0])] {
        let mut machine = Machine::new(60, base(shape));
        let disk = |at| {
            let (name, image) = (format!("new{at}"), Image::new(65_536));
            machine.sim.add_disk(&name, image, DiskConfig::default())
        };
        let new: Vec<SimDisk> = (0..shape.data_disks()).map(disk).collect();
        let old = machine.disks.clone();
        machine.live(async |open| {
            write(open, 1, 1).await.unwrap();
            open.pool.sync().await.unwrap();
            assert_eq!(vdevs_of_newest(&old[0]).await, before, "{shape:?}");
            open.pool.add_data(&vdev_of(named(&new)), false).await.unwrap();
            for version in 2..6 {
                write(open, 1, version).await.unwrap();
                open.pool.sync().await.unwrap();
            }
            assert_eq!(vdevs_of_newest(&old[0]).await, [0, 1], "{shape:?}");
            open.pool.export().await.unwrap();
        });
        machine.disks.extend(new.clone());
        for vdev in [&old, &new] {
            let index = u16::from(std::ptr::eq(vdev, &new));
            let lost = machine.live(async |open| {
                check(open, 1, 5).await.unwrap();
                for _ in 0..3 {
                    open.pool.sync().await.unwrap();
                }
                open.pool.export().await.unwrap();
                roots(&vdev[0]).await
            });
            assert_eq!(lost.len(), 3);
            for place in lost.iter().flat_map(RecordPointer::copies) {
                if place.vdev() == index {
                    vdev.iter().for_each(|disk| disk.corrupt(place.sector(), Corruption::Garbage));
                }
            }
        }
        machine.live(async |open| {
            check(open, 1, 5).await.unwrap();
            open.pool.export().await.unwrap();
        });
    }
}
