module github.com/lockrun/lockrun

go 1.26.0
