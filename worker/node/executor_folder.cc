#include "worker/node/executor_folder.h"

#include <sys/stat.h>

#include <filesystem>
#include <system_error>
#include <utility>

namespace outboard::worker {

ExecutorFolder::ExecutorFolder(std::string path) : path_(std::move(path)) {
  mkdir(path_.c_str(), 0700);
}

ExecutorFolder::~ExecutorFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace outboard::worker
