//go:build !cgo || purego_sqlite

package sqlite

import "github.com/lockrun/lockrun/backends/sqlite/modernc"

// linked is the driver of this build.
var linked = driverFuncs{name: "pure Go", open: modernc.Open, code: modernc.Code}
