// Package disk has the operations about disks and the filesystems on them, and what those
// of other packages ask about a mount: which disk it is on, and who uses it.
package disk
