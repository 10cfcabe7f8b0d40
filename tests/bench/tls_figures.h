// Measures what TLS costs: small steps and a large upload, by TCP on loopback with and without it,
// in the same run.
#pragma once

namespace outboard::bench {

void TlsFigures();

}  // namespace outboard::bench
