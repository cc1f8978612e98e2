// Package boottime has no clock here; package supervise says why lockrun does not run on this system.
package boottime
