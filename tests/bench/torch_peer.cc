#include "tests/bench/torch_peer.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/paths.h"

namespace outboard::bench {
namespace {

constexpr char kInstall[] = "; scripts/setup --bench installs the one from PyPI";

// The value of a string field; empty where there is none.
std::string Field(const std::string& json, const std::string& name) {
  const std::string start = absl::StrCat("\"", name, "\": \"");
  const size_t at = json.find(start);
  if (at == std::string::npos) return "";
  const size_t begin = at + start.size();
  return json.substr(begin, json.find('"', begin) - begin);
}

bool Has(const std::string& json, const std::string& name) {
  return absl::StrContains(json, absl::StrCat("\"", name, "\": true"));
}

std::string Output(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  char buffer[512];
  while (const size_t size = fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, size);
  return pclose(pipe) == 0 ? text : "";
}

}  // namespace

TorchPeer JudgeTorch(const std::string& text) {
  TorchPeer peer;
  const std::string version = Field(text, "version");
  if (version.empty()) {
    peer.lacks = absl::StrCat("PyTorch is not installed", kInstall);
    return peer;
  }
  const bool mkl = Has(text, "mkl"), openblas = Has(text, "openblas"), dnn = Has(text, "onednn");
  if (!mkl && !openblas) {
    peer.lacks = absl::StrCat("PyTorch ", version, " multiplies without MKL or OpenBLAS", kInstall);
    return peer;
  }
  if (!dnn) {
    peer.lacks = absl::StrCat("PyTorch ", version, " convolves without oneDNN", kInstall);
    return peer;
  }
  peer.version = absl::StrCat(version, " (", mkl ? "MKL" : "OpenBLAS", ", oneDNN)");
  return peer;
}

const TorchPeer& Torch() {
  static const TorchPeer peer = [] {
    std::string python = absl::StrCat(test::kBuildFolder, "/bench-venv/bin/python");
    if (access(python.c_str(), X_OK) != 0) python = "/usr/bin/python3";
    // Debian's OpenBLAS detects recent Xeons as Prescott, so the core type is set here.
    const std::string core = __builtin_cpu_supports("avx512f") ? "OPENBLAS_CORETYPE=SkylakeX " : "";
    python = core + python;
    TorchPeer found = JudgeTorch(
        Output(absl::StrCat(python, " ", test::kBenchFolder, "/torch_peer.py 2>/dev/null")));
    found.python = python;
    return found;
  }();
  return peer;
}

std::string TorchPython() {
  const char* const named = std::getenv("OUTBOARD_TORCH_PYTHON");
  return named != nullptr ? named : Torch().python;
}

std::string BenchSources() {
  const char* const named = std::getenv("OUTBOARD_BENCH_SOURCES");
  return named != nullptr ? named : test::kBenchFolder;
}

}  // namespace outboard::bench
