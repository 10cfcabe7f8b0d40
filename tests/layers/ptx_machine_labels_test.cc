// The label ptx_machine of ctest's entries, by which tests/bench counts what runs on the PTX
// machine, against the programs themselves: a test has it if its program is linked with the machine
// or names the tests' own CUDA driver, or if it is given that driver.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tests/support/paths.h"

namespace outboard::layers {
namespace {

using Json = nlohmann::json;

constexpr char kLabel[] = "ptx_machine";
// Entries that test figures: of those nobody counts the tests.
constexpr char kFigures[] = "bench";

Json AllEntries() {
  std::string said;
  std::FILE* const pipe = popen(
      (std::string(CTEST " --test-dir ") + test::kBuildFolder + " --show-only=json-v1 2>/dev/null")
          .c_str(),
      "r");
  if (pipe == nullptr) return Json::array();
  std::array<char, 65536> piece;
  while (const size_t count = std::fread(piece.data(), 1, piece.size(), pipe))
    said.append(piece.data(), count);
  pclose(pipe);
  const size_t begin = said.find('{');
  if (begin == std::string::npos) return Json::array();
  const Json all = Json::parse(said.substr(begin), nullptr, /*allow_exceptions=*/false);
  return all.is_discarded() ? Json::array() : all.value("tests", Json::array());
}

Json PropertyOf(const Json& entry, const std::string& name) {
  for (const Json& property : entry.value("properties", Json::array()))
    if (property.value("name", "") == name) return property.at("value");
  return Json::array();
}

// Whether the test is started with a variable, by either of ctest's properties.
bool Sets(const Json& entry, const std::string& variable) {
  for (const char* const property : {"ENVIRONMENT", "ENVIRONMENT_MODIFICATION"})
    for (const Json& setting : PropertyOf(entry, property))
      if (setting.get<std::string>().starts_with(variable + "=")) return true;
  return false;
}

bool HasLabel(const Json& entry, const std::string& label) {
  const Json labels = PropertyOf(entry, "LABELS");
  return std::ranges::find(labels, Json(label)) != labels.end();
}

// The machine's function that runs a kernel, or the driver that has it.
bool RunsKernels(const std::string& program) {
  std::ifstream file(program, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  // In two parts each: this program has them, too.
  const std::string outboard_ptx = "_ZN8outboard3ptx", tests_driver = "/tests/fake_cuda/";
  for (const std::string& mark : {outboard_ptx + "7Machine6Launch", tests_driver + "libcuda.so"})
    if (memmem(bytes.data(), bytes.size(), mark.data(), mark.size()) != nullptr) return true;
  return false;
}

TEST(PtxMachineLabels, AreThoseOfTheProgramsThatRunKernelsThere) {
  ASSERT_TRUE(RunsKernels(test::kPtxWarpTest));
  const Json entries = AllEntries();
  ASSERT_FALSE(entries.empty());
  std::map<std::string, bool> programs;
  std::set<std::string> asked;  // programs that go there where they are asked to
  for (const Json& entry : entries) {
    const std::string program = entry.value("command", Json::array({""})).at(0);
    if (std::filesystem::path(program).parent_path() != std::string(test::kBuildFolder) + "/tests")
      continue;
    if (!programs.contains(program)) programs[program] = RunsKernels(program);
    if (Sets(entry, "OUTBOARD_CHECK_PTX")) asked.insert(program);
  }
  int labelled = 0;
  for (const Json& entry : entries) {
    const std::string program = entry.value("command", Json::array({""})).at(0);
    const auto known = programs.find(program);
    if (known == programs.end() || HasLabel(entry, kFigures)) continue;
    // What names a processor runs kernels on it alone.
    const bool runs =
        !Sets(entry, "OUTBOARD_PROCESSOR") &&
        (asked.contains(program) ? Sets(entry, "OUTBOARD_CHECK_PTX") : known->second);
    // Not the other way round: of a program that names the driver the compiler may take the name
    // apart.
    EXPECT_TRUE(HasLabel(entry, kLabel) || !(runs || Sets(entry, "OUTBOARD_CUDA_DRIVER")))
        << entry.value("name", "")
        << " runs on the PTX machine without the label (cmake/PtxMachine.cmake)";
    labelled += HasLabel(entry, kLabel) ? 1 : 0;
  }
  std::printf("%zu programs, %d entries on the PTX machine\n", programs.size(), labelled);
  EXPECT_GT(labelled, 0);
}

}  // namespace
}  // namespace outboard::layers
