// Must not compile: the result of "mul-zro" uses y, which its match does not bind.
#include "compiler/rewrite/pattern.h"

namespace outboard {
using namespace pattern;
constexpr Rule kRules[] = {{"add-zero", x + 0, x}, {"mul-zro", x * 0, y}};
const Rule* const rules = kRules;
}  // namespace outboard
