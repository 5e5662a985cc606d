// Package block has the operations about hung tasks: where they wait, who holds what they wait for,
// and checks of the possible causes (a disk, a frozen filesystem, NFS, a lock).
package block
