// Package mistake has what is wrong in files that people write: each mistake with its
// place, all of a file at once, and the names that a wrong one may mean.
//
// It is a leaf. It reads no files: package strictyaml (rules) and diagnose/yamldoc
// (manifests) do.
package mistake
