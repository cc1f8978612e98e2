package metrics

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// GroupPath is where a Pushgateway keeps the metrics of one key on one host: one group for each of them.
func GroupPath(key, host string) string {
	return "/metrics/job/lockrun" + groupLabel("key", key) + groupLabel("instance", host)
}

// groupLabel writes a label as a Pushgateway reads it out of a path: encoded where a path would not keep it as it is. Some
// servers and proxies decode, clean or refuse what is merely escaped.
func groupLabel(name, value string) string {
	if value == "" {
		return "/" + name + "@base64/=" // as its documentation has it
	}
	if plain := strings.Trim(value, "."); plain == "" || url.PathEscape(value) != value || strings.ContainsAny(value, "/;@&=+$:,") {
		return "/" + name + "@base64/" + base64.RawURLEncoding.EncodeToString([]byte(value))
	}
	return "/" + name + "/" + value
}
