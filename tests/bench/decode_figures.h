// A text that grows token by token: what a token costs, and that nothing is compiled as it grows.
#pragma once

namespace outboard::bench {

void DecodeFigures();

}  // namespace outboard::bench
