// A folder of one executor, which becomes its root where the kernel grants that.
#pragma once

#include <string>

namespace outboard::worker {

// Made by the constructor, for this user alone; the destructor removes it with what is in it. A
// folder that cannot be made is an error of whoever writes there.
class ExecutorFolder {
 public:
  explicit ExecutorFolder(std::string path);
  ~ExecutorFolder();
  ExecutorFolder(const ExecutorFolder&) = delete;
  ExecutorFolder& operator=(const ExecutorFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  const std::string path_;
};

}  // namespace outboard::worker
