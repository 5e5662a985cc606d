// Package disk has the operations about disks and the filesystems on them. Other packages use it to
// find the disk of a mount, and the users of a disk.
package disk
