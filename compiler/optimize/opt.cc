#include "compiler/optimize/opt.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "absl/strings/str_cat.h"

namespace outboard::codegen {
namespace {

// By OptKind.
constexpr std::array<std::string_view, 21> kNames = {
    "FLATTEN", "VECTOR", "UPCAST", "UNROLL", "GROUP", "CPU_MATRIX_UNIT",
    "BLOCK",   "SWAP",   "THREAD", "LOCAL",  "PANEL", "ONLINE",
    "GRID",    "LANE",   "WARP",   "SHARE",  "MMA",   "WGMMA",
    "CLUSTER", "ALIGN",  "KEEP"};
// What CPU_MATRIX_UNIT was called: tuning stores have lists with it.
constexpr std::string_view kFormerCpuMatrixUnit = "TC";

bool ParseNumber(std::string_view text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

bool ParseOpt(std::string_view word, Opt& opt) {
  const size_t first = word.find(':');
  if (first == std::string_view::npos) return false;
  const size_t second = word.find(':', first + 1);
  if (second == std::string_view::npos) return false;
  const std::string_view kind = word.substr(0, first);
  const auto* const name = std::find(kNames.begin(), kNames.end(), kind);
  if (name != kNames.end())
    opt.kind = static_cast<OptKind>(name - kNames.begin());
  else if (kind == kFormerCpuMatrixUnit)
    opt.kind = OptKind::kCpuMatrixUnit;
  else
    return false;
  return ParseNumber(word.substr(first + 1, second - first - 1), opt.axis) &&
         ParseNumber(word.substr(second + 1), opt.amount);
}

}  // namespace

std::string OptToString(const Opt& opt) {
  const std::string_view name = kNames[static_cast<size_t>(opt.kind)];
  return absl::StrCat(absl::string_view(name.data(), name.size()), ":", opt.axis, ":", opt.amount);
}

std::string OptsToString(const std::vector<Opt>& opts) {
  std::string out;
  for (const Opt& opt : opts) absl::StrAppend(&out, out.empty() ? "" : " ", OptToString(opt));
  return out;
}

absl::StatusOr<std::vector<Opt>> ParseOpts(std::string_view text) {
  std::vector<Opt> opts;
  while (!text.empty()) {
    const size_t length = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, length);
    text.remove_prefix(std::min(length + 1, text.size()));
    if (word.empty()) continue;
    Opt opt;
    if (!ParseOpt(word, opt))
      return absl::InvalidArgumentError(absl::StrCat("\"", std::string(word), "\" is no Opt"));
    opts.push_back(opt);
  }
  return opts;
}

}  // namespace outboard::codegen
