#include "tests/compiler/ptx_assembler.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/sha256.h"
#include "tests/support/paths.h"

namespace outboard::test {
namespace {

std::string FindTool(const char* name, const char* variable) {
  if (const char* const named = std::getenv(variable); named != nullptr) return named;
  const char* const path = std::getenv("PATH");
  const std::string folders =
      absl::StrCat(kBuildFolder, "/assembler:", path == nullptr ? "" : path);
  for (const absl::string_view folder : absl::StrSplit(folders, ':')) {
    const std::string file = absl::StrCat(folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

// Processor time of the processes that this one has waited for, in seconds.
double SecondsOfChildren() {
  rusage used;
  OB_CHECK(getrusage(RUSAGE_CHILDREN, &used) == 0);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// What the assembler said of a text that it took.
struct Said {
  double seconds = 0;
  std::string words;
};

// Runs a command of the shell. Returns whether it succeeded.
bool Run(const std::string& command, std::string& words) {
  std::FILE* const pipe = popen(absl::StrCat(command, " 2>&1").c_str(), "r");
  OB_CHECK(pipe != nullptr);
  char piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, pipe)) words.append(piece, count);
  return pclose(pipe) == 0;
}

// The file that keeps what this assembler says of this text; empty where nothing is kept.
std::string FileOf(const std::string& ptxas, const std::string& ptx, const std::string& arch) {
  const char* const named = std::getenv("OUTBOARD_ASSEMBLED");
  const std::string folder =
      named != nullptr ? named : absl::StrCat(kBuildFolder, "/tests/assembled");
  if (folder.empty()) return "";
  std::string version;
  if (!Run(absl::StrCat("'", ptxas, "' --version"), version)) return "";
  std::filesystem::create_directories(folder);
  const Sha256Digest digest = Sha256(absl::StrCat(ptxas, "\n", version, "\n", arch, "\n", ptx));
  return absl::StrCat(folder, "/",
                      absl::BytesToHexString(
                          {reinterpret_cast<const char*>(digest.data()), digest.size()}));
}

std::optional<Said> ReadSaid(const std::string& file) {
  std::ifstream in(file);
  Said said;
  if (file.empty() || !(in >> said.seconds) || in.get() != '\n') return std::nullopt;
  said.words.assign(std::istreambuf_iterator<char>(in), {});
  return said;
}

// Whole or not at all, as other tests write and read the same ones.
void KeepSaid(const std::string& file, const Said& said) {
  if (file.empty()) return;
  const std::string unfinished = absl::StrCat(file, ".", getpid());
  std::ofstream out(unfinished);
  out << said.seconds << "\n" << said.words;
  out.close();
  std::error_code failed;
  if (out) std::filesystem::rename(unfinished, file, failed);
  if (!out || failed) std::filesystem::remove(unfinished, failed);
}

// Errors: INTERNAL with the assembler's words.
absl::StatusOr<Said> Assemble(const std::string& ptxas, const std::string& ptx,
                              const std::string& arch) {
  const std::string file = FileOf(ptxas, ptx, arch);
  if (auto said = ReadSaid(file); said.has_value()) return *std::move(said);
  std::string folder = std::filesystem::temp_directory_path() / "outboard_ptx_XXXXXX";
  OB_CHECK(mkdtemp(folder.data()) != nullptr);
  std::ofstream(folder + "/kernel.ptx") << ptx;
  Said said;
  const double before = SecondsOfChildren();
  const bool taken = Run(absl::StrCat("'", ptxas, "' -v -arch=", arch, " '", folder,
                                      "/kernel.ptx' -o '", folder, "/kernel.cubin'"),
                         said.words);
  said.seconds = SecondsOfChildren() - before;
  std::filesystem::remove_all(folder);
  if (!taken) return absl::InternalError(said.words);
  KeepSaid(file, said);
  return said;
}

}  // namespace

std::string FindPtxas() { return FindTool("ptxas", "OUTBOARD_PTXAS"); }
std::string FindNvdisasm() { return FindTool("nvdisasm", "OUTBOARD_NVDISASM"); }

absl::StatusOr<Assembled> AssembleKernel(const std::string& ptxas, const std::string& ptx,
                                         const std::string& arch) {
  OB_ASSIGN_OR_RETURN(const Said said, Assemble(ptxas, ptx, arch));
  const std::string& words = said.words;
  // The number before `unit`, in the last line that has it.
  const auto number = [&](const char* unit, int64_t* value) {
    const size_t said = words.rfind(unit);
    if (said == std::string::npos) return false;
    const size_t first = words.find_last_not_of("0123456789", said - 1) + 1;
    return absl::SimpleAtoi(words.substr(first, said - first), value);
  };
  Assembled out;
  out.seconds = said.seconds;
  int64_t stored = 0, loaded = 0;
  if (!number(" registers", &out.registers) || !number(" bytes stack frame", &out.stack_bytes) ||
      !number(" bytes spill stores", &stored) || !number(" bytes spill loads", &loaded))
    return absl::InternalError(words);
  out.spill_bytes = stored + loaded;
  out.serialised = absl::StrContains(words, "serialized");
  out.ignored = absl::StrContains(words, "ignored");
  for (const absl::string_view line : absl::StrSplit(words, '\n'))
    out.warnings += absl::StrContains(line, "warning") ? 1 : 0;
  return out;
}

absl::StatusOr<int64_t> StackBytesOf(const std::string& ptxas, const std::string& ptx,
                                     const std::string& arch) {
  OB_ASSIGN_OR_RETURN(const Assembled assembled, AssembleKernel(ptxas, ptx, arch));
  return assembled.stack_bytes;
}

}  // namespace outboard::test
