#include "tests/shelf/shelf_cloud.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/check.h"

extern char** environ;

namespace outboard::test {
namespace {

constexpr int kReadyTenths = 600;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

absl::StatusOr<pid_t> Spawn(const std::vector<std::string>& argv, const std::string& output) {
  std::vector<char*> arguments;
  for (const std::string& word : argv) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return absl::UnavailableError(absl::StrCat("cannot start ", argv[0]));
  return pid;
}

}  // namespace

absl::Status ShelfCloud::StartServer(std::vector<std::string> argv, const std::string& name) {
  const std::string ready = absl::StrCat(folder_, "/ready-", name),
                    output = absl::StrCat(folder_, "/out-", name);
  argv.insert(argv.end(), {"--ready-file", ready});
  OB_ASSIGN_OR_RETURN(const pid_t pid, Spawn(argv, output));
  servers_.push_back(pid);
  for (int i = 0; i < kReadyTenths && !std::filesystem::exists(ready); ++i) {
    if (waitpid(pid, nullptr, WNOHANG) == pid) {
      servers_.pop_back();
      return absl::UnavailableError(absl::StrCat(name, " ended: ", TextOf(output)));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return std::filesystem::exists(ready)
             ? absl::OkStatus()
             : absl::UnavailableError(absl::StrCat(name, " is not ready: ", TextOf(output)));
}

absl::StatusOr<std::unique_ptr<ShelfCloud>> ShelfCloud::Start(Shelf& shelf, int nodes,
                                                              const ShelfCloudOptions& options) {
  std::unique_ptr<ShelfCloud> cloud(new ShelfCloud());
  char folder[] = "/tmp/outboard-shelf.XXXXXX";
  if (mkdtemp(folder) == nullptr) return absl::UnavailableError("no temporary folder");
  cloud->folder_ = folder;
  const std::string data = cloud->folder_ + "/data", fleet = "unix:" + cloud->folder_ + "/fleet";
  OB_RETURN_IF_ERROR(cloud->StartServer({options.outboard, "gateway", "--listen", "127.0.0.1:0",
                                         "--fleet-listen", fleet, "--data", data,
                                         "--snapshot-every", "0"},
                                        "gateway"));
  cloud->target_ = TextOf(cloud->folder_ + "/ready-gateway");
  cloud->target_.resize(cloud->target_.find_first_of(" \n"));
  for (int node = 0; node < nodes; ++node) {
    const std::string name = absl::StrCat("node-", node);
    std::vector<std::string> argv = shelf.In(node);
    if (options.core_each) argv.insert(argv.end(), {"taskset", "-c", std::to_string(node)});
    argv.insert(argv.end(),
                {options.outboard, "worker", "--gateway", fleet, "--fleet-secret-file",
                 data + "/fleet.secret", "--name", name, "--identity-file",
                 absl::StrCat(cloud->folder_, "/", name), "--devices",
                 std::to_string(options.devices), "--no-idle-search", "--shared-anyway"});
    OB_ASSIGN_OR_RETURN(const std::vector<std::string> link, shelf.DataAddressOptions(node));
    argv.insert(argv.end(), link.begin(), link.end());
    OB_RETURN_IF_ERROR(cloud->StartServer(std::move(argv), name));
  }
  const std::string made = cloud->folder_ + "/key";
  OB_ASSIGN_OR_RETURN(const pid_t pid,
                      Spawn({options.outboard, "key", "create", "--data", data}, made));
  waitpid(pid, nullptr, 0);
  const std::string said = TextOf(made);  // remarks for people come before it
  const size_t key = said.find("ob_live_");
  if (key == std::string::npos) return absl::UnavailableError("no key: " + said);
  cloud->key_ = said.substr(key, said.find_first_of(" \n", key) - key);
  return cloud;
}

ShelfCloud::~ShelfCloud() {
  while (!servers_.empty()) {
    const pid_t pid = servers_.back();
    servers_.pop_back();
    kill(pid, SIGTERM);
    for (int i = 0; i < 100 && waitpid(pid, nullptr, WNOHANG) == 0; ++i) {
      if (i == 80) kill(pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace outboard::test
