// What every source file must keep to: which folder may include which (docs/architecture.md),
// how long a file may be, that a header says what it is for, and that no promise reaches LLVM which
// a tenant's numbers could break.
//
// Arguments of nodes are read by name (compiler/ir/accessors.h); what still reads them by number is
// listed, and the list only gets shorter.
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
#include "tests/support/paths.h"

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
    {"base/", {"base/"}},
    {"proto/", {"proto/"}},
    {"telemetry/", {"base/", "telemetry/"}},
    {"wire/", {"base/", "proto/", "wire/"}},
    {"compiler/", {"base/", "compiler/"}},
    {"compiler/ir/", {"base/", "compiler/ir/"}},
    {"compiler/rewrite/", {"base/", "compiler/ir/", "compiler/rewrite/"}},
    {"compiler/gradient/",
     {"base/", "compiler/divide_up.h", "compiler/ir/", "compiler/rewrite/",
      "compiler/split_period.h", "compiler/gradient/"}},
    {"compiler/reference/", {"base/", "compiler/ir/", "compiler/reference/"}},
    {"compiler/proof/",
     {"base/", "compiler/ir/", "compiler/proof/", "compiler/program/program.h"}},
    {"compiler/shard/",
     {"base/", "compiler/divide_up.h", "compiler/failed_node.h", "compiler/ir/",
      "compiler/rewrite/", "compiler/shard/"}},
    {"compiler/schedule/",
     {"base/", "compiler/copies.h", "compiler/divide_up.h", "compiler/ir/",
      "compiler/optimize/cost.h", "compiler/rewrite/", "compiler/schedule/", "compiler/target.h"}},
    {"compiler/optimize/cost",
     {"base/", "compiler/ir/", "compiler/optimize/cost.h", "compiler/target.h"}},
    {"compiler/optimize/loop_cost",
     {"base/", "compiler/ir/", "compiler/kernel/", "compiler/optimize/", "compiler/target.h"}},
    {"compiler/target", {"base/", "compiler/target.h"}},
    {"compiler/host_target", {"base/", "compiler/target.h"}},
    {"compiler/compiled_kernel.h", {}},  // the runtime sees it, so it brings nothing with it
    {"runtime/", {"base/", "runtime/", "compiler/compiled_kernel.h"}},
    {"storage/", {"base/", "storage/"}},
    // Of the runtime, the interface alone: what is behind it is a device's own business.
    {"worker/",
     {"base/", "proto/", "wire/", "compiler/", "runtime/collective/", "runtime/device.h",
      "runtime/devices.h",
      "storage/", "telemetry/", "worker/"}},
    {"gateway/",
     {"base/", "proto/", "wire/", "compiler/", "storage/", "telemetry/", "gateway/"}},
    {"client/",
     {"base/", "proto/", "wire/", "compiler/ir/", "compiler/rewrite/", "compiler/gradient/",
      "client/"}},
    // What tensors are built on knows nothing of them.
    {"client/session/",
     {"base/", "proto/", "wire/", "compiler/ir/", "client/session/", "client/files/",
      "client/report/report_channel.h", "client/trace/"}},
    {"client/examples/",
     {"base/", "compiler/ir/", "compiler/rewrite/", "compiler/gradient/", "client/",
      "cli/arguments.h"}},
    {"python/", {"base/", "wire/", "compiler/ir/", "compiler/rewrite/", "client/", "python/"}},
    {"cli/", {""}},
    {"tests/", {""}},
};

// Packages that only some folders may include.
struct Package {
  std::string headers;
  Strings only;
};
const std::vector<Package> kPackages = {
    {"prometheus/", {"telemetry/"}},  // the laptop links none of these three
    {"civetweb.h", {"telemetry/"}},
    {"spdlog/", {"telemetry/"}},
    {"llvm/", {"compiler/render/llvm/", "tests/"}},
    {"llvm-c/", {}},
    {"grpc/", {"wire/", "client/", "gateway/", "worker/", "cli/", "tests/"}},
    {"grpcpp/", {"wire/", "client/", "gateway/", "worker/", "cli/", "tests/"}},
    {"google/", {"wire/", "client/", "gateway/", "worker/", "cli/", "tests/"}},
    {"openssl/",
     {"base/", "compiler/ir/", "telemetry/", "wire/", "client/", "gateway/", "worker/", "cli/",
      "tests/"}},
    {"sqlite3.h", {"storage/", "tests/"}},
    {"CL/", {"runtime/opencl/", "tests/"}},
    {"CLI/", {"cli/arguments.cc"}},
    {"tss2/", {"worker/tpm/"}},  // and loaded there, not linked
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
// UOp::arg taken apart. To hand on all of it, to make a node anew, is no reading.
const std::regex kArgument(
    "(->|\\.)(arg_dim\\(|arg(\\[|\\.(begin|end|front|back|at|data|subspan)\\())");
// Lines that do so outside of compiler/ir.
struct Readers {
  std::string file;
  int lines;
};
const std::vector<Readers> kArgumentReaders = {
    {"compiler/reference/graph_run.cc", 1},  // numbers in the place of symbolic dimensions
    {"compiler/rewrite/order.cc", 1},        // any two nodes of one operation are compared
    {"compiler/rewrite/rebuild.cc", 1},      // numbers in the place of symbolic dimensions
    {"compiler/schedule/prepare.cc", 1},     // numbers in the place of symbolic dimensions
    {"tests/compiler/ir_graph_test.cc", 2},  // of UOp::arg_dim itself
    {"tests/compiler/shrink.cc", 1},         // a PARAM becomes a BUFFER of the same shape
};
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
    if (StartsWithAny(path, {"gateway/admission/", "gateway/data_path/"}) &&
        header.find("grpc") != std::string::npos)
      report("the data path, which is simulated, may not include " + header);
    const std::string folder = header.substr(0, header.find('/'));
    if (folder != header && std::find(kFolders.begin(), kFolders.end(), folder) != kFolders.end()) {
      if (layer != nullptr && !StartsWithAny(header, layer->may_include))
        report("may not include " + header + ": " + layer->files +
               " includes only what its row in kLayers says; move the code down a layer or pass it "
               "in");
      continue;
    }
    if (folder == "..") report("include from the repository's root, not " + header);
    for (const Package& package : kPackages)
      if (StartsWith(header, package.headers) && !StartsWithAny(path, package.only))
        report("may not include " + header + ": " + layer->files +
               " includes only what its row in kLayers says; move the code down a layer or pass it "
               "in");
    // runtime and compiler: nothing but Abseil and what the lines above allow. A name without a
    // folder or an extension is the standard library's or the system's.
    const Strings system = {"absl/", "sys/", "linux/", "netinet/", "arpa/", "openssl/", "llvm/"};
    if (layer != nullptr && StartsWith(path, "compiler/") && folder != header &&
        !StartsWithAny(header, system))
      report("compiler includes Abseil and libcrypto only, not " + header);
  }
  return found;
}

// Lines of the file that read arguments by number.
int ArgumentReaders(const std::string& path, const std::string& text) {
  if (StartsWith(path, "compiler/ir/")) return 0;
  int found = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    found += std::regex_search(WithoutComment(line), kArgument);
  return found;
}

TEST(Layers, ArgumentRuleFires) {
  const struct {
    std::string path, line;
    int found;
  } cases[] = {
      {"worker/a.cc", "x = node->arg[0];", 1},
      {"worker/a.cc", "x = node.arg[i] + node.arg[1];", 1},
      {"worker/a.cc", "x = node->arg_dim(2);", 1},
      {"worker/a.cc", "for (auto a : node->arg.subspan(1))", 1},
      {"compiler/ir/a.cc", "x = node->arg[0];", 0},
      {"worker/a.cc", "// as node->arg[0]", 0},
      {"worker/a.cc", "x = arg[0] + my_arg[1];", 0},
      {"worker/a.cc", "g.Make(node->op, node->dtype, src, node->arg)", 0},
      {"worker/a.cc", "operand.arg->kind()", 0},
  };
  for (const auto& c : cases) EXPECT_EQ(ArgumentReaders(c.path, c.line), c.found) << c.line;
}

TEST(Layers, ArgumentsAreReadByName) {
  for (const Source& source : AllSources()) {
    int allowed = 0;
    for (const Readers& readers : kArgumentReaders)
      if (readers.file == source.path) allowed = readers.lines;
    if (source.path == "tests/layers/layers_test.cc") continue;  // the lines above
    EXPECT_EQ(ArgumentReaders(source.path, source.text), allowed)
        << source.path << ": read arguments by compiler/ir/accessors.h; where fewer lines do not, "
        << "kArgumentReaders gets shorter";
  }
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
      {"client/a.cc", "#include \"client/session/session.h\"\n", false},
      {"client/session/a.cc", "#include \"client/session/link/link.h\"\n", false},
      {"client/session/a.cc", "#include \"client/tensor/tensor.h\"\n", true},
      {"client/session/a.cc", "#include \"client/lazy/realize.h\"\n", true},
      {"client/a.cc", "#include <llvm/IR/Module.h>\n", true},
      {"compiler/a.cc", "#include \"proto/cloud.pb.h\"\n", true},
      {"compiler/a.cc", "#include <grpcpp/channel.h>\n", true},
      {"compiler/ir/a.cc", "#include \"compiler/rewrite/rules/rules.h\"\n", true},
      {"compiler/ir/a.cc", "#include <openssl/sha.h>\n", false},
      {"compiler/schedule/a.cc", "#include <openssl/sha.h>\n", true},
      {"worker/a.cc", "#include \"storage/sqlite.h\"\n", false},
      {"worker/a.cc", "#include <sqlite3.h>\n", true},
      {"storage/a.cc", "#include \"gateway/core/core.h\"\n", true},
      {"compiler/gradient/a.cc", "#include \"compiler/schedule/schedule.h\"\n", true},
      {"compiler/reference/a.cc", "#include \"compiler/rewrite/simplify.h\"\n", true},
      {"compiler/proof/a.cc", "#include \"compiler/rewrite/simplify.h\"\n", true},
      {"compiler/render/llvm/a.cc", "#include <llvm/IR/Module.h>\n", false},
      {"compiler/render/opencl.cc", "#include <llvm/IR/Module.h>\n", true},
      {"compiler/optimize/a.cc", "#include \"llvm/IR/Module.h\"\n", true},
      {"compiler/optimize/a.cc", "#include <boost/asio.hpp>\n", true},
      {"runtime/a.cc", "#include \"compiler/compiled_kernel.h\"\n", false},
      {"runtime/a.cc", "#include \"compiler/ir/uop.h\"\n", true},
      {"worker/a.cc", "#include \"runtime/device.h\"\n", false},
      {"worker/a.cc", "#include \"runtime/cpu/device.h\"\n", true},
      {"compiler/compiled_kernel.h", "// x\n#include \"compiler/ir/uop.h\"\n", true},
      {"gateway/a.cc", "#include \"worker/engine/engine.h\"\n", true},
      {"gateway/data_path/a.cc", "#include \"proto/cloud.pb.h\"\n", false},
      {"gateway/data_path/a.cc", "#include \"proto/cloud.grpc.pb.h\"\n", true},
      {"gateway/data_path/a.cc", "#include <grpcpp/channel.h>\n", true},
      {"gateway/admission/a.cc", "#include <grpcpp/channel.h>\n", true},
      {"worker/a.cc", "#include \"gateway/core/core.h\"\n", true},
      {"worker/a.cc", "#include \"../gateway/core.h\"\n", true},
      {"cli/a.cc", "#include \"gateway/core/core.h\"\n#include \"worker/engine/engine.h\"\n",
       false},
      {"proto/a.h", "// x\n#include \"base/check.h\"\n", true},
      {"wire/a.h", "// x\n#include \"compiler/ir/uop.h\"\n", true},
      {"base/a.h", "// x\n#include \"wire/limits.h\"\n", true},
      {"elsewhere/a.cc", "", true},
      {"client/a.h", "#pragma once\n", true},
      {"client/a.h", "// Why.\n#pragma once\n", false},
      {"client/a.cc", std::string(kLinesMax, '\n'), false},
      {"client/a.cc", std::string(kLinesMax + 1, '\n'), true},
      {"client/a.cc", "  assert(x);\n", true},
      {"client/a.cc", "  static_assert(x);  // no assert(x) here\n", false},
      {"compiler/render/llvm/a.cc", "b.CreateNSWAdd(x, y);\n", true},
      {"compiler/render/llvm/a.cc", "b.CreateInBoundsGEP(t, p, i);\n", true},
      {"compiler/render/llvm/a.cc", "b.CreateAdd(x, y, \"\", /*HasNUW=*/true);\n", true},
      {"compiler/render/llvm/a.cc", "b.CreateGEP(t, p, i);  // never inbounds\n", false},
      {"compiler/render/ptx.cc", "out += \"add nsw i32\";\n", true},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(!Violations(c.path, c.text).empty(), c.wrong) << c.path << "\n" << c.text;
  }
}

TEST(Layers, EverySource) {
  const std::vector<Source> sources = AllSources();
  ASSERT_GT(sources.size(), 50u) << "looked in " << test::kSourceFolder;
  std::string all;
  for (const Source& source : sources)
    for (const std::string& violation : Violations(source.path, source.text))
      all += violation + "\n";
  EXPECT_EQ(all, "");
}

}  // namespace
}  // namespace outboard::layers
