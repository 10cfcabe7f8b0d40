// Real processes in tests: started with their output in files, stopped by pid, inspected through
// /proc.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder.h"

extern char** environ;

namespace outboard::test {

// Children of `pid`, by the kernel's list.
inline std::vector<int> ChildrenOf(int pid) {
  std::vector<int> children;
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", error)) {
    std::ifstream file(task.path() / "children");
    for (int child; file >> child;) children.push_back(child);
  }
  return children;
}

// And their children.
inline std::vector<int> FamilyOf(int pid) {
  std::vector<int> family = ChildrenOf(pid);
  for (size_t i = 0; i < family.size(); ++i)
    for (int child : ChildrenOf(family[i])) family.push_back(child);
  return family;
}

inline bool IsAlive(int pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(file, line)) return false;
  size_t after_name = line.rfind(')');  // the name may hold anything
  return after_name != std::string::npos && line[after_name + 2] != 'Z';
}

// "outboard worker ..." as it was started; arguments joined by spaces. Of a process that ends
// meanwhile it may be empty: streams throw then.
inline std::string CommandLineOf(int pid) try {
  std::string line = ReadFile("/proc/" + std::to_string(pid) + "/cmdline");
  for (char& c : line)
    if (c == '\0') c = ' ';
  return line;
} catch (const std::ios_base::failure&) {
  return "";
}

// The descendants of `pid` whose command line holds `word`.
inline std::vector<int> DescendantsNamed(int pid, const std::string& word) {
  std::vector<int> named;
  for (int child : FamilyOf(pid))
    if (IsAlive(child) && CommandLineOf(child).find(word) != std::string::npos)
      named.push_back(child);
  return named;
}

// Killed and reaped by the destructor. Its descriptor kLifeFd closes however the test ends: servers
// that get it (--life-fd) do not outlive a test that crashes.
inline constexpr int kLifeFd = 3;
class Process {
 public:
  // argv[0] is the path. `environment`: "NAME=value" to add or replace, "NAME" to remove.
  explicit Process(std::vector<std::string> argv, std::vector<std::string> environment = {}) {
    std::vector<char*> arguments, variables;
    for (std::string& argument : argv) arguments.push_back(argument.data());
    arguments.push_back(nullptr);
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string name(*entry, std::string(*entry).find('=') + 1);
      bool replaced = false;
      for (const std::string& own : environment) replaced |= (own + "=").starts_with(name);
      if (!replaced) variables.push_back(*entry);
    }
    for (std::string& own : environment)
      if (own.find('=') != std::string::npos) variables.push_back(own.data());
    variables.push_back(nullptr);
    int life[2] = {-1, -1};
    if (pipe2(life, O_CLOEXEC) != 0) ADD_FAILURE() << "no pipe";
    life_fd_ = life[1];
    const int high = fcntl(life[0], F_DUPFD_CLOEXEC, 64);  // dup2 onto itself would keep CLOEXEC
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, high, kLifeFd);
    for (int fd : {1, 2})
      posix_spawn_file_actions_addopen(&actions, fd, FileOf(fd).c_str(),
                                       O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int error =
        posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), variables.data());
    posix_spawn_file_actions_destroy(&actions);
    close(life[0]);
    close(high);
    if (error != 0) {
      ADD_FAILURE() << "cannot start " << argv[0];
      pid_ = -1;
    }
  }
  ~Process() {
    Stop(SIGKILL);
    close(life_fd_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int pid() const { return pid_; }
  std::string out() const { return ReadFile(FileOf(1)); }
  std::string err() const { return ReadFile(FileOf(2)); }

  void Signal(int signal) const {
    if (pid_ > 0) kill(pid_, signal);
  }
  // The exit code, or 128 and the signal, as a shell tells it; -1 if it does not end.
  int Wait(int seconds = 60) {
    if (pid_ <= 0) return code_;
    int status = 0;
    if (!Eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }, seconds)) return -1;
    pid_ = -1;
    return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int Stop(int signal) {
    Signal(signal);
    return Wait();
  }

 private:
  std::string FileOf(int fd) const { return folder_ / std::to_string(fd); }

  TempFolder folder_;
  int pid_ = -1;
  int life_fd_ = -1;
  int code_ = -1;
};

// The process that serves this rank of a session, as its worker's log has it; 0: none yet.
// `session`: its id, in hexadecimal digits.
inline int ExecutorOf(const std::string& log, const std::string& session, uint32_t rank) {
  const std::string assigned =
      "event=executor_assigned session=" + session + " rank=" + std::to_string(rank) + " pid=";
  const size_t at = log.rfind(assigned);  // earlier ones were lost
  if (at == std::string::npos || log.find('\n', at) == std::string::npos) return 0;
  return std::stoi(log.substr(at + assigned.size()));
}

struct Ended {
  int code = -1;
  std::string out, err;
};

// Runs a program to its end.
inline Ended RunToEnd(std::vector<std::string> argv, std::vector<std::string> environment = {}) {
  Process process(std::move(argv), std::move(environment));
  const int code = process.Wait();
  return {code, process.out(), process.err()};
}

}  // namespace outboard::test
