// Measures the installation of the Python package on a bare Debian 12, by the wheel in
// build/wheels.
#pragma once

namespace outboard::bench {

void InstallFigures();

}  // namespace outboard::bench
