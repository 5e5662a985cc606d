// Package block has the operations about tasks that hang: where they wait, who holds what
// they wait for, and the checks of what it may be (a disk, a frozen filesystem, NFS, a lock).
package block
