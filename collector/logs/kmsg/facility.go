package kmsg

import "github.com/kernosis/kernosis/collector/event"

// facilityName returns the name of the facility; only the kernel's is trustworthy.
func facilityName(facility int) string {
	if facility < 0 || facility >= len(facilityNames) {
		return "unknown"
	}
	return facilityNames[facility]
}

// facilityNames is a constant table, indexed by number; see syslog(3).
//
//nolint:gochecknoglobals // immutable, and read for every record
var facilityNames = [...]string{
	event.OriginKernel, "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp",
	"ntp", "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
}
