// Package npd reads the configuration files of node-problem-detector (NPD) and
// makes of them what Kernosis runs: rules, and settings of log sources, check
// programs and system statistics.
//
// [Parse] and [LoadFile] read one file, strictly, to a [File]: plain data with
// NPD's defaults filled in. Mistakes are reported together, with file, line, column
// and key. What NPD ignores (an unknown key, a key that stands twice) is a
// warning, and so is the comma behind a list's last item, which one of the files
// that NPD ships has: NPD itself does not start with it.
//
// [Convert] merges files to a [Set]: a layer of rule files for [detector.Load],
// and the settings. Rules that report one condition share it, whichever files
// they stand in.
//
// The package reads files and runs nothing: who runs log sources and check
// programs takes their settings from the Set.
package npd
