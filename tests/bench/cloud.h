// A gateway and workers of the benchmark's own, as `outboard up` starts them, and a key for them.
#pragma once

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace outboard::bench {

class Cloud {
 public:
  // Starts with empty caches of the workers and without search, unless variables of `environment`
  // set either. Exits with a message on failure.
  // `arguments`: further ones of `outboard up`.
  explicit Cloud(int workers,
                 const std::vector<std::pair<std::string, std::string>>& environment = {},
                 const std::vector<std::string>& arguments = {});
  ~Cloud();  // ends it and removes its folder
  Cloud(const Cloud&) = delete;
  Cloud& operator=(const Cloud&) = delete;

  const std::string& target() const { return target_; }
  const std::string& key() const { return key_; }
  std::string MakeKey(const std::string& account) const;
  pid_t pid() const { return pid_; }  // of the gateway
  // The folder of the workers' compiled kernels; sessions started after its removal compile again.
  std::string objects() const { return folder_ + "/objects"; }
  std::string log() const;  // what gateway and workers have said
  // Processor time of the process that is gateway and supervisor, since it started.
  double cpu_seconds() const;
  // "CLOUD=1 ..." for a command line: a program that runs here.
  std::string Prefix() const;

 private:
  std::string folder_, target_, key_;
  pid_t pid_ = -1;
};

// A command line's start that runs a program of Python with the package as built, and a private
// worker unless Cloud::Prefix() stands before it.
std::string PythonCommand();
// A program that is built beside this one, or in bin/ where this one is a test.
std::string Beside(const std::string& name);
// What a command prints; exits with a message where it fails.
std::string OutputOf(const std::string& command);
// Processor time of a process since it started; exits with a message where there is none.
double ProcessCpuSeconds(pid_t pid);
// The number under `name` in a JSON object's text; exits where there is none.
double NumberIn(const std::string& json, const std::string& name);
// The text there, without escapes; exits where there is none.
std::string TextIn(const std::string& json, const std::string& name);

}  // namespace outboard::bench
