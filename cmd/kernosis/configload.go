package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

// origins says where the value of each key comes from, as a person would look for
// it: "flag --listen", "env KERNOSIS_LISTEN", "/etc/kernosis.yaml:3", "default". Values
// below a key of the file have theirs too: "logs[1].path".
type origins map[string]string

const originDefault = "default"

// errorf returns a mistake in a value with where that stands, or what it is part of.
func (o origins) errorf(field, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	from := o.of(field)
	switch kind, where, _ := strings.Cut(from, " "); {
	case where != "" && (kind == "flag" || kind == "env"):
		return fmt.Errorf("%s: %w", where, err)
	case from != "" && from != originDefault:
		return fmt.Errorf("%s: %s: %w", from, field, err)
	}
	return fmt.Errorf("%s: %w", field, err)
}

// of returns where a value comes from, or else what it is part of.
func (o origins) of(field string) string {
	for field != "" && o[field] == "" {
		field = field[:max(0, strings.LastIndexAny(field, ".["))]
	}
	return o[field]
}

const envPrefix = "KERNOSIS_"

// envName is the variable of a key.
func envName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer("-", "_", ".", "_").Replace(key))
}

// loadConfig merges flags, environment and file, and checks the result.
func loadConfig(cmd *cobra.Command) (config, error) {
	c := config{origins: origins{}, isAgent: cmd.Flags().Lookup(flagKubeExporter) != nil}
	v := viper.NewWithOptions(viper.KeyDelimiter("::")) // a dot is part of a flag's name
	if err := v.BindPFlags(cmd.Flags()); err != nil {
		return c, err
	}
	if err := c.bindEnv(v, cmd.Flags()); err != nil {
		return c, err
	}
	if path := v.GetString("config"); path != "" {
		if err := c.readFile(v, path); err != nil {
			return c, err
		}
	}
	if err := v.Unmarshal(&c); err != nil {
		return c, fmt.Errorf("configuration: %w", err)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed {
			c.origins[f.Name] = "flag --" + f.Name
		}
	})
	c.defaultServices()
	return c, c.validate()
}

// bindEnv binds the variables that are set. It tells those that nobody knows, but
// doesn't refuse them: Kubernetes sets variables of the services of a namespace, and
// a pod must not fail to start because somebody made a service of such a name.
func (c *config) bindEnv(v *viper.Viper, fs *pflag.FlagSet) error {
	keys := configKeys()
	known := map[string]string{}
	for _, k := range keys {
		known[envName(k)] = k
	}
	for _, pair := range slices.Sorted(slices.Values(os.Environ())) {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || serviceLink(name, value) {
			continue
		}
		key, ok := known[name]
		switch f := fs.Lookup(key); {
		case !ok:
			c.warnings = append(c.warnings, "environment variable "+name+" is not known")
		case f == nil: // of the other command, or of the file alone
		default:
			if err := checkText(f.Value.Type(), value); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if err := v.BindEnv(key, name); err != nil {
				return err
			}
			c.origins[key] = "env " + name
		}
	}
	return nil
}

// serviceLink reports whether kubelet has set the variable for a service of that
// name, such as KERNOSIS_PORT=tcp://10.0.0.1:443 for a service "kernosis".
func serviceLink(name, value string) bool {
	link := regexp.MustCompile(`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)
	url := regexp.MustCompile(`^(tcp|udp|sctp)://`)
	return link.MatchString(name) || strings.HasSuffix(name, "_PORT") && url.MatchString(value)
}

// configKeys returns the keys that a file may have, in the order of config, and
// "config" itself.
func configKeys() []string {
	return append([]string{"config"}, structKeys(reflect.TypeFor[config]())...)
}

func structKeys(t reflect.Type) (keys []string) {
	for f := range t.Fields() {
		switch name, inline, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case inline == "inline":
			keys = append(keys, structKeys(f.Type)...)
		case name != "":
			keys = append(keys, name)
		}
	}
	return keys
}

// checkText tells whether a text is a value of a flag's type.
func checkText(flagType, text string) (err error) {
	switch flagType {
	case "bool":
		_, err = strconv.ParseBool(text)
	case "int", "int64":
		_, err = strconv.ParseInt(text, 0, 64)
	case "uint16":
		_, err = strconv.ParseUint(text, 0, 16)
	case "float32":
		_, err = strconv.ParseFloat(text, 32)
	case "duration":
		_, err = time.ParseDuration(text)
	}
	if err != nil {
		return fmt.Errorf("%q is no %s", text, flagType)
	}
	return nil
}
