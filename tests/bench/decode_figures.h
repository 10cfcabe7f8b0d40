// Measures the generation of text token by token: the time per token, and that nothing is compiled
// as the text grows.
#pragma once

namespace outboard::bench {

void DecodeFigures();

}  // namespace outboard::bench
