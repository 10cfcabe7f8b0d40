#include "tests/bench/cloud.h"
#include "tests/support/paths.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

namespace outboard::bench {
namespace {

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "outboard_bench: %s\n", what.c_str());
  std::exit(1);
}

std::string Trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

double NumberIn(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\": ");
  if (at == std::string::npos) Die("no " + name + " in " + json);
  return std::stod(json.substr(at + name.size() + 4));
}

std::string TextIn(const std::string& json, const std::string& name) {
  const std::string start = absl::StrCat("\"", name, "\": \"");
  const size_t at = json.find(start);
  if (at == std::string::npos) Die("no " + name + " in " + json);
  return json.substr(at + start.size(), json.find('"', at + start.size()) - at - start.size());
}

std::string PythonCommand() {
  return absl::StrCat("PYTHONPATH=", test::kBuildFolder,
                      "/python OUTBOARD_BIN=", Beside("outboard"), " ", test::kBuildFolder,
                      "/venv/bin/python ");
}

std::string Beside(const std::string& name) {
  const std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  if (std::filesystem::exists(folder / name)) return (folder / name).string();
  return (folder.parent_path() / "bin" / name).string();  // of a test
}

std::string OutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) Die("cannot run " + command);
  std::string output;
  char buffer[4096];
  while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe)) output.append(buffer, n);
  if (pclose(pipe) != 0) Die(command + " failed");
  return Trimmed(output);
}

Cloud::Cloud(int workers, const std::vector<std::pair<std::string, std::string>>& environment,
             const std::vector<std::string>& arguments) {
  char folder[] = "/tmp/outboard-bench.XXXXXX";
  if (mkdtemp(folder) == nullptr) Die("no temporary folder");
  folder_ = folder;
  const std::string outboard = Beside("outboard"), ready = folder_ + "/ready",
                    count = std::to_string(workers);
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // a benchmark that fails exits without its destructors
    if (freopen((folder_ + "/log").c_str(), "w", stdout) == nullptr) _exit(127);
    dup2(1, 2);
    setenv("OUTBOARD_OBJECT_CACHE", objects().c_str(), 1);  // one tenant
    setenv("OUTBOARD_KERNEL_STORE", (folder_ + "/kernels.db").c_str(), 1);
    setenv("OUTBOARD_IDLE_SEARCH", "0", 1);
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    std::vector<const char*> argv{"outboard",     "up",         "--workers", count.c_str(),
                                  "--port",       "0",          "--data",    folder_.c_str(),
                                  "--ready-file", ready.c_str()};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    argv.push_back(nullptr);
    execv(outboard.c_str(), const_cast<char* const*>(argv.data()));
    _exit(127);
  }
  for (int i = 0; i < 300 && target_.empty(); ++i) {
    usleep(100000);
    std::ifstream file(ready);
    std::getline(file, target_);
    if (waitpid(pid_, nullptr, WNOHANG) == pid_) Die("the gateway ended; see " + folder_ + "/log");
  }
  if (target_.empty()) Die("the gateway was not ready within 30 s; see " + folder_ + "/log");
  key_ = OutputOf(outboard + " key create --data " + folder_ + " --name bench 2>/dev/null");
}

std::string Cloud::MakeKey(const std::string& account) const {
  return OutputOf(absl::StrCat(Beside("outboard"), " key create --data ", folder_, " --name bench",
                               " --account ", account, " 2>/dev/null"));
}

std::string Cloud::Prefix() const {
  return "CLOUD=1 CLOUD_HOST=" + target_ + " CLOUD_KEY=" + key_ + " ";
}

double ProcessCpuSeconds(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 1));  // the name may hold spaces
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  double user = 0, system = 0;  // fields 14 and 15 of proc(5)
  if (!(fields >> user >> system)) Die("no processor time in " + text);
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string Cloud::log() const {
  std::ifstream file(folder_ + "/log");
  return {std::istreambuf_iterator<char>(file), {}};
}

double Cloud::cpu_seconds() const { return ProcessCpuSeconds(pid_); }

Cloud::~Cloud() {
  kill(pid_, SIGTERM);
  waitpid(pid_, nullptr, 0);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace outboard::bench
