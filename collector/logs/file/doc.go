// Package file follows log files by name, across rotations.
//
// # Which file
//
// What the path leads to is read as it grows. When that is another file than
// before, the old one is read to its end first, and it is held to have an end
// only when the new one has content: until its writer is told of the rotation it
// writes to the old file. Files that were rotated in between two looks are read
// in turn. They are found beside the file the path leads to, by names with a
// number or date behind or before the extension ([isRotated]); compressed ones
// are not read.
//
// A file that is truncated is read on in the copy that was made of it
// (logrotate's copytruncate), which is the rotated file with the same first
// bytes; where there is none, that is a Loss of unknown size. A file that was
// truncated and has grown beyond where it was read is noticed by its first bytes,
// a kilobyte of them: one that is written again with the same beginning is not.
//
// What a writer appends to a file after it has written to the next one is read
// at the next rotation.
//
// # Where to begin
//
// The Position names device, inode, offset and a checksum of the first bytes. The
// file is looked for at the path and among the rotated ones, by inode and
// checksum, then by checksum alone (a copy; another device number after a boot).
// Reading goes on there, and then with the files that were written later. Where
// it is not found, it was rotated away or compressed: a Loss of unknown size, and
// the current file is read from its start.
//
// Without a position, Lookback decides by the times in the lines, in rotated
// files as well; 0 begins at the end of the file, with its last line if that is
// not finished. A file that comes into being later is new as a whole.
//
// # Lines
//
// A line ends with "\n"; a "\r" before it is taken off. The last line waits for
// its end for PartialAfter, or until its file is done with. What is longer than
// MaxLine is handed over without its end, followed by a Loss that says how much
// is missing. Zeros at the start of a line, which a crash or a truncation leaves
// behind, are taken off. Other bytes are handed over as they are: zeros, control
// characters, invalid UTF-8.
//
// # Network file systems
//
// Changes are seen by inotify, and by a look every PollEvery where there is none.
package file
