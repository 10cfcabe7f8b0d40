#include "tests/bench/gpu_machine_code.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "tests/support/command_output.h"
#include "tests/support/temp_folder.h"

namespace outboard::bench {

absl::StatusOr<MachineCode> MachineCodeOf(const std::string& ptxas, const std::string& nvdisasm,
                                          const std::string& ptx, const std::string& arch) {
  const test::TempFolder folder;
  const std::string text = folder / "kernel.ptx", binary = folder / "kernel.cubin";
  std::ofstream(text) << ptx;
  MachineCode code;
  OB_ASSIGN_OR_RETURN(code.said, test::OutputOf(absl::StrCat("'", ptxas, "' -arch=", arch, " '",
                                                             text, "' -o '", binary, "'")));
  if (!nvdisasm.empty()) {
    OB_ASSIGN_OR_RETURN(code.listing,
                        test::OutputOf(absl::StrCat("'", nvdisasm, "' '", binary, "'")));
  }
  return code;
}

std::vector<CodeLoop> LoopsWith(const std::string& product, const std::string& listing) {
  std::vector<std::string> lines;
  std::vector<std::pair<std::string, size_t>> labels;  // and the instructions before
  for (const absl::string_view line : absl::StrSplit(listing, '\n')) {
    if (absl::StartsWith(line, ".L_") && absl::StrContains(line, ":"))
      labels.emplace_back(line.substr(0, line.find(':')), lines.size());
    if (absl::StartsWith(absl::StripLeadingAsciiWhitespace(line), "/*") &&
        absl::StrContains(line, ";"))
      lines.emplace_back(line);
  }
  std::vector<CodeLoop> loops;
  const auto is_conditional = [&](size_t at) { return absl::StrContains(lines[at], "@"); };
  // The last end of the kernel before each instruction.
  std::vector<std::optional<size_t>> exits;
  std::optional<size_t> exit;
  for (size_t at = 0; at < lines.size(); ++at) {
    exits.push_back(exit);
    if (absl::StrContains(lines[at], "EXIT") && !is_conditional(at)) exit = at;
  }
  for (size_t end = 0; end < lines.size(); ++end) {
    if (!absl::StrContains(lines[end], "BRA")) continue;
    for (const auto& [label, begin] : labels) {
      if (begin > end || !absl::StrContains(lines[end], absl::StrCat("(", label, ")"))) continue;
      // Without a condition, and over the kernel's end, it leaves what the assembler has moved
      // behind that: waiting once more.
      if (!is_conditional(end) && exits[end].has_value() && *exits[end] >= begin) continue;
      const auto products =
          std::count_if(lines.begin() + static_cast<ptrdiff_t>(begin),
                        lines.begin() + static_cast<ptrdiff_t>(end) + 1,
                        [&](const std::string& line) { return absl::StrContains(line, product); });
      if (products > 0) loops.push_back({begin, end - begin + 1, static_cast<size_t>(products)});
    }
  }
  return loops;
}

}  // namespace outboard::bench
