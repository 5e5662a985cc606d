// Package npd reads the configuration files of node-problem-detector (NPD) and converts them for
// Kernosis: to rules, and to settings of log sources, check programs and system statistics.
//
// [Parse] and [LoadFile] read one file strictly and return a [File]: plain data with NPD's defaults
// filled in. All mistakes are reported together, with file, line, column and key. Things that NPD
// ignores (an unknown or duplicate key) are warnings. A trailing comma in a list is a warning too:
// one of the files that NPD ships has one, although NPD itself refuses to start with it.
//
// [Convert] merges files to a [Set]: a layer of rule files for [detector.Load], and the settings.
// Rules that report the same condition share it, even if they are in different files.
//
// The package only reads files. Callers run log sources and check programs with the
// settings from the Set.
package npd
