//go:build cgo && !purego_sqlite

package sqlite

import "github.com/lockrun/lockrun/backends/sqlite/mattn"

// linked is the driver of this build.
var linked = driverFuncs{name: "cgo", open: mattn.Open, code: mattn.Code}
