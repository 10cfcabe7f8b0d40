#include "tests/compiler/amdgpu_object.h"

#include <unistd.h>

#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "tests/support/command_output.h"
#include "tests/support/temp_folder.h"

namespace outboard::test {
namespace {

constexpr const char* kTools[] = {"ld.lld", "llvm-objdump", "llvm-readelf"};

std::string ToolAt(const std::string& name) { return absl::StrCat(OUTBOARD_LLVM_TOOLS, "/", name); }

// The number behind `name` in the notes.
absl::StatusOr<int64_t> NumberOf(const std::string& notes, const std::string& name) {
  const size_t at = notes.find(name);
  int64_t value = 0;
  const size_t begin = at + name.size(), end = notes.find('\n', begin);
  if (at == std::string::npos || !absl::SimpleAtoi(notes.substr(begin, end - begin), &value))
    return absl::InternalError(absl::StrCat("no ", name, " in the notes:\n", notes));
  return value;
}

}  // namespace

std::string MissingAmdgpuTool() {
  for (const char* const tool : kTools)
    if (access(ToolAt(tool).c_str(), X_OK) != 0) return tool;
  return "";
}

absl::StatusOr<AmdgpuCode> LinkAndDisassemble(const std::string& object, const std::string& arch) {
  const TempFolder folder;
  const std::string in = folder / "kernel.o", out = folder / "kernel.co";
  std::ofstream(in, std::ios::binary) << object;
  OB_RETURN_IF_ERROR(
      OutputOf(absl::StrCat(ToolAt("ld.lld"), " -shared --no-undefined -o ", out, " ", in))
          .status());
  OB_ASSIGN_OR_RETURN(const std::string notes,
                      OutputOf(absl::StrCat(ToolAt("llvm-readelf"), " --notes ", out)));
  AmdgpuCode code;
  OB_ASSIGN_OR_RETURN(code.private_bytes, NumberOf(notes, ".private_segment_fixed_size:"));
  OB_ASSIGN_OR_RETURN(const int64_t scalars, NumberOf(notes, ".sgpr_spill_count:"));
  OB_ASSIGN_OR_RETURN(const int64_t vectors, NumberOf(notes, ".vgpr_spill_count:"));
  code.spills = scalars + vectors;
  OB_ASSIGN_OR_RETURN(
      code.text, OutputOf(absl::StrCat(ToolAt("llvm-objdump"), " -d --mcpu=", arch, " ", out)));
  return code;
}

}  // namespace outboard::test
