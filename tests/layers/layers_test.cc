// What every source file must keep to: which folder may include which (docs/architecture.md),
// how long a file may be, that a header says what it is for, and that no promise reaches LLVM which
// a tenant's numbers could break.
//
// Every rule is tried on made-up files first, so that a rule which never fires is noticed.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/layers/sources.h"

namespace outboard::layers {
namespace {

using Strings = std::vector<std::string>;

constexpr int kLinesMax = 600;

// Which of our headers the files whose paths start with `files` may include; the longest match
// decides.
struct Layer {
  std::string files;
  Strings may_include;
};
const std::vector<Layer> kLayers = {
    {"tests/", {""}},
    {"cli/", {""}},
    {"compiler/ir/", {"compiler/ir/"}},
    {"compiler/rewrite/", {"compiler/ir/", "compiler/rewrite/"}},
    {"compiler/tensor/", {"compiler/ir/", "compiler/rewrite/", "compiler/tensor/"}},
    {"compiler/reference/", {"compiler/ir/", "compiler/reference/"}},
    {"compiler/proof/", {"compiler/ir/", "compiler/proof/", "compiler/program/program.h"}},
    {"compiler/schedule/", {"compiler/ir/", "compiler/rewrite/", "compiler/schedule/"}},
    {"compiler/", {"compiler/"}},
    {"proto/", {"proto/"}},
    {"runtime/", {"runtime/", "compiler/compiled_kernel.h"}},
    {"compiler/compiled_kernel.h", {}},  // seen by the runtime, so it brings nothing with it
    {"storage/", {"storage/", "base/check.h"}},
    // Of the runtime, the interface alone: what is behind it is a device's own business.
    {"worker/",
     {"worker/", "runtime/device.h", "runtime/devices.h", "compiler/", "proto/", "storage/"}},
    {"gateway/", {"gateway/", "compiler/", "proto/", "storage/"}},
    {"client/", {"client/", "compiler/ir/", "compiler/rewrite/", "compiler/tensor/", "proto/"}},
    {"examples/", {"client/", "compiler/ir/"}},
};

// Packages that only some folders may include.
struct Package {
  std::string headers;
  Strings only;
};
const std::vector<Package> kPackages = {
    {"llvm/", {"compiler/render/llvm", "tests/"}},
    {"llvm-c/", {}},
    {"grpc/", {"proto/", "client/", "gateway/", "worker/", "cli/", "tests/"}},
    {"grpcpp/", {"proto/", "client/", "gateway/", "worker/", "cli/", "tests/"}},
    {"google/", {"proto/", "client/", "gateway/", "worker/", "cli/", "tests/"}},
    {"openssl/", {"compiler/ir/", "proto/", "client/", "gateway/", "worker/", "cli/", "tests/"}},
    {"sqlite3.h", {"storage/", "tests/"}},
    {"CL/", {"runtime/opencl/"}},
    {"spdlog/", {"gateway/", "worker/", "client/", "cli/", "tests/"}},
    {"CLI/", {"cli/", "client/examples/", "tests/"}},
    {"gtest/", {"tests/"}},
    {"gmock/", {"tests/"}},
    {"nlohmann/", {"cli/", "tests/"}},
    {"nanobind/", {"python/"}},
    {"Python.h", {"python/"}},
};

// What the renderers must not write: flags on instructions whose operands a tenant chooses.
const std::regex kPromise(
    "CreateNSW|CreateNUW|InBounds|inbounds|setHasNo(Uns|S)ignedWrap|HasN[SU]W|\\b(nsw|nuw|nusw)\\b|"
    "CreateExact|"
    "CreateUnreachable|CreateAssumption|\\bassume\\b|setIsExact|setFast\\(|setNoNaNs|setNoInfs|"
    "setAllowReassoc");
const std::regex kAssert("(^|[^_A-Za-z0-9])assert\\s*\\(|#\\s*include\\s*<cassert>|<assert\\.h>");
const std::regex kInclude("^\\s*#\\s*include\\s*[\"<]([^\">]+)[\">]");

bool StartsWithAny(std::string_view text, const Strings& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& p) { return StartsWith(text, p); });
}
// Rules are listed from the general to the special only where that reads better: the longest match
// decides.
const Layer* LayerOf(std::string_view path) {
  const Layer* best = nullptr;
  for (const Layer& layer : kLayers)
    if (StartsWith(path, layer.files) &&
        (best == nullptr || layer.files.size() > best->files.size()))
      best = &layer;
  return best;
}

std::string WithoutComment(const std::string& line) { return line.substr(0, line.find("//")); }

// Everything that is wrong with the file `path` (relative to the repository's root) of this text.
Strings Violations(const std::string& path, const std::string& text) {
  Strings found;
  std::istringstream lines(text);
  std::string line;
  int number = 0;
  const auto report = [&](const std::string& what) {
    found.push_back(path + ":" + std::to_string(number) + ": " + what);
  };
  const Layer* const layer = LayerOf(path);
  if (layer == nullptr) report("is in no layer of this test");
  while (std::getline(lines, line)) {
    ++number;
    if (number == 1 && EndsWith(path, ".h") && !StartsWith(line, "//"))
      report("a header starts with what it is for");
    if (number == kLinesMax + 1) report("over " + std::to_string(kLinesMax) + " lines");
    const std::string code = WithoutComment(line);
    if (StartsWith(path, "compiler/render/") && std::regex_search(code, kPromise))
      report("a promise to LLVM: " + code);
    if (!StartsWith(path, "tests/") && std::regex_search(code, kAssert))
      report("assert; use OB_CHECK or a Status");
    std::smatch match;
    if (!std::regex_search(line, match, kInclude)) continue;
    const std::string header = match[1];
    const std::string folder = header.substr(0, header.find('/'));
    if (folder != header && std::find(kFolders.begin(), kFolders.end(), folder) != kFolders.end()) {
      if (layer != nullptr && !StartsWithAny(header, layer->may_include))
        report("may not include " + header);
      continue;
    }
    if (folder == "..") report("include from the repository's root, not " + header);
    for (const Package& package : kPackages)
      if (StartsWith(header, package.headers) && !StartsWithAny(path, package.only))
        report("may not include " + header);
    // runtime and compiler: nothing but Abseil and what the lines above allow. A name without a
    // folder or an extension is the standard library's or the system's.
    const Strings system = {"absl/", "sys/", "linux/", "netinet/", "arpa/", "openssl/", "llvm/"};
    if (layer != nullptr && StartsWith(path, "compiler/") && folder != header &&
        !StartsWithAny(header, system))
      report("compiler includes Abseil and libcrypto only, not " + header);
  }
  return found;
}

TEST(Layers, RulesFire) {
  const struct {
    std::string path, text;
    bool wrong;
  } cases[] = {
      {"client/a.cc", "#include \"compiler/ir/uop.h\"\n", false},
      {"client/a.cc", "#include \"compiler/gradient/gradient.h\"\n", false},
      {"client/a.cc", "#include \"compiler/schedule/schedule.h\"\n", true},
      {"client/a.cc", "#include \"compiler/reference/interpret.h\"\n", true},
      {"client/a.cc", "#include \"worker/engine/engine.h\"\n", true},
      {"client/a.cc", "#include <llvm/IR/Module.h>\n", true},
      {"compiler/a.cc", "#include \"proto/cloud.pb.h\"\n", true},
      {"compiler/a.cc", "#include <grpcpp/channel.h>\n", true},
      {"compiler/ir/a.cc", "#include \"compiler/rewrite/rules/rules.h\"\n", true},
      {"compiler/ir/a.cc", "#include <openssl/sha.h>\n", false},
      {"compiler/schedule/a.cc", "#include <openssl/sha.h>\n", true},
      {"worker/a.cc", "#include \"storage/sqlite.h\"\n", false},
      {"worker/a.cc", "#include <sqlite3.h>\n", true},
      {"storage/a.cc", "#include \"gateway/core/core.h\"\n", true},
      {"compiler/tensor/a.cc", "#include \"compiler/schedule/schedule.h\"\n", true},
      {"compiler/reference/a.cc", "#include \"compiler/rewrite/simplify.h\"\n", true},
      {"compiler/proof/a.cc", "#include \"compiler/rewrite/simplify.h\"\n", true},
      {"compiler/render/llvm_a.cc", "#include <llvm/IR/Module.h>\n", false},
      {"compiler/render/opencl.cc", "#include <llvm/IR/Module.h>\n", true},
      {"compiler/codegen/a.cc", "#include \"llvm/IR/Module.h\"\n", true},
      {"compiler/codegen/a.cc", "#include <boost/asio.hpp>\n", true},
      {"runtime/a.cc", "#include \"compiler/compiled_kernel.h\"\n", false},
      {"runtime/a.cc", "#include \"compiler/ir/uop.h\"\n", true},
      {"worker/a.cc", "#include \"runtime/device.h\"\n", false},
      {"worker/a.cc", "#include \"runtime/cpu/device.h\"\n", true},
      {"compiler/compiled_kernel.h", "// x\n#include \"compiler/ir/uop.h\"\n", true},
      {"gateway/a.cc", "#include \"worker/engine/engine.h\"\n", true},
      {"worker/a.cc", "#include \"gateway/core/core.h\"\n", true},
      {"worker/a.cc", "#include \"../gateway/core.h\"\n", true},
      {"cli/a.cc", "#include \"gateway/core/core.h\"\n#include \"worker/engine/engine.h\"\n",
       false},
      {"proto/a.h", "// x\n#include \"base/check.h\"\n", true},
      {"elsewhere/a.cc", "", true},
      {"client/a.h", "#pragma once\n", true},
      {"client/a.h", "// Why.\n#pragma once\n", false},
      {"client/a.cc", std::string(kLinesMax, '\n'), false},
      {"client/a.cc", std::string(kLinesMax + 1, '\n'), true},
      {"client/a.cc", "  assert(x);\n", true},
      {"client/a.cc", "  static_assert(x);  // no assert(x) here\n", false},
      {"compiler/render/llvm_a.cc", "b.CreateNSWAdd(x, y);\n", true},
      {"compiler/render/llvm_a.cc", "b.CreateInBoundsGEP(t, p, i);\n", true},
      {"compiler/render/llvm_a.cc", "b.CreateAdd(x, y, \"\", /*HasNUW=*/true);\n", true},
      {"compiler/render/llvm_a.cc", "b.CreateGEP(t, p, i);  // never inbounds\n", false},
      {"compiler/render/ptx.cc", "out += \"add nsw i32\";\n", true},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(!Violations(c.path, c.text).empty(), c.wrong) << c.path << "\n" << c.text;
  }
}

TEST(Layers, EverySource) {
  const std::vector<Source> sources = AllSources();
  ASSERT_GT(sources.size(), 50u) << "looked in " << OUTBOARD_SOURCE_DIR;
  std::string all;
  for (const Source& source : sources)
    for (const std::string& violation : Violations(source.path, source.text))
      all += violation + "\n";
  EXPECT_EQ(all, "");
}

}  // namespace
}  // namespace outboard::layers
