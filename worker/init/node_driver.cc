#include "worker/init/node_driver.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "worker/init/driver_fetch.h"
#include "worker/init/module_tables.h"
#include "worker/init/node_facts.h"

namespace outboard::worker {
namespace {

constexpr size_t kModulesMax = 64, kTableBytesMax = 16 << 20;

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

bool FitsInMemory(const proto::NodeDriver& driver) {
  const int64_t machine = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  return driver.bytes() <= static_cast<uint64_t>(machine) / 2;
}

absl::Status Fetch(const FetchOptions& options) {
#ifdef OUTBOARD_FETCHES_DRIVERS
  return FetchByDigest(options);
#else
  return absl::UnimplementedError("this build fetches no drivers (OUTBOARD_VIZ)");
#endif
}

// A file system needs its module, and no device asks for it; built into the kernel it has none.
absl::Status LoadOfImage(const std::string& kernel, const std::vector<std::string>& names) {
  const std::string folder = absl::StrCat("/lib/modules/", kernel, "/");
  const ModuleTables tables("", FileText(folder + "modules.dep", kTableBytesMax));
  for (const std::string& name : names)
    for (const std::string& path : tables.Named(name))
      OB_RETURN_IF_ERROR(LoadModule(folder + path));
  return absl::OkStatus();
}

// Through a loop device, which goes with the mount.
absl::Status MountFile(const std::string& file, const std::string& folder) {
  const int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
  if (control < 0) return Failed("/dev/loop-control");
  const int number = ioctl(control, LOOP_CTL_GET_FREE);
  close(control);
  if (number < 0) return Failed("no loop device is free");
  const std::string device = absl::StrCat("/dev/loop", number);
  const int backing = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (backing < 0) return Failed(file);
  const int loop = open(device.c_str(), O_RDONLY | O_CLOEXEC);
  loop_config config{};
  config.fd = static_cast<__u32>(backing);
  config.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  absl::Status status;
  if (loop < 0 || ioctl(loop, LOOP_CONFIGURE, &config) != 0) status = Failed(device);
  mkdir(folder.c_str(), 0755);
  if (status.ok() && mount(device.c_str(), folder.c_str(), "squashfs",
                           MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) != 0)
    status = Failed(absl::StrCat(file, " cannot be mounted"));
  if (loop >= 0) close(loop);
  close(backing);
  return status;
}

absl::Status LoadModules(const std::string& mounted) {
  OB_ASSIGN_OR_RETURN(const std::vector<std::string> modules, ModulesOf(mounted));
  std::error_code error;
  if (std::filesystem::is_directory(mounted + "/firmware", error))
    std::ofstream("/sys/module/firmware_class/parameters/path") << mounted << "/firmware";
  for (const std::string& path : modules) OB_RETURN_IF_ERROR(LoadModule(path));
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckDriverKernel(const std::string& of_driver, const std::string& of_machine) {
  if (of_driver == of_machine) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("the driver is for another kernel: expected ",
                                                    of_machine, ", found ", of_driver));
}

absl::StatusOr<std::vector<std::string>> ModulesOf(const std::string& mounted) {
  std::vector<std::string> paths;
  for (const absl::string_view line :
       absl::StrSplit(FileText(mounted + "/modules/load", 64 << 10), '\n', absl::SkipEmpty())) {
    if (absl::StrContains(line, '/') || !absl::EndsWith(line, ".ko"))
      return absl::InvalidArgumentError(
          absl::StrCat("modules/load of the driver names ", line, ", which is no module's file"));
    if (paths.size() >= kModulesMax)
      return absl::InvalidArgumentError(
          absl::StrCat("modules/load of the driver names more than ", kModulesMax, " modules"));
    paths.push_back(absl::StrCat(mounted, "/modules/", line));
  }
  return paths;
}

absl::Status MountSquashfs(const std::string& file, const std::string& folder,
                           const std::string& kernel) {
  OB_RETURN_IF_ERROR(LoadOfImage(kernel, {kImageFileModules.begin(), kImageFileModules.end()}));
  return MountFile(file, folder);
}

absl::Status LoadModule(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed(path);
  const bool is_loaded = syscall(SYS_finit_module, fd, "", 0) == 0 || errno == EEXIST;
  const absl::Status status =
      is_loaded ? absl::OkStatus() : Failed(absl::StrCat("the module ", path, " is not loaded"));
  close(fd);
  return status;
}

absl::Status CheckDriver(const proto::NodeDriver& driver, const std::string& boot_server,
                         const std::string& kernel) {
  OB_RETURN_IF_ERROR(CheckDriverKernel(driver.kernel(), kernel));
  if (boot_server.empty())
    return absl::InvalidArgumentError(
        "no outboard.boot= on the kernel's command line says where the driver is");
  if (!FitsInMemory(driver))
    return absl::ResourceExhaustedError(
        absl::StrCat("the driver has ", driver.bytes(),
                     " bytes, more than half of this machine's memory, where it is kept"));
  return absl::OkStatus();
}

absl::Status UseDriver(const proto::NodeDriver& driver, const std::string& boot_server,
                       const std::string& kernel, const std::string& node_folder,
                       std::stop_token stop,
                       std::function<void(const absl::Status& why)> on_pause) {
  OB_RETURN_IF_ERROR(CheckDriver(driver, boot_server, kernel));
  const std::string file = absl::StrCat(node_folder, "/", kDriverFile),
                    mounted = absl::StrCat(node_folder, "/", kDriverFolder);
  // Of a worker that ended on its way here.
  umount2(mounted.c_str(), MNT_DETACH);
  unlink(file.c_str());
  OB_RETURN_IF_ERROR(Fetch({.server = boot_server,
                            .digest = driver.digest(),
                            .bytes = driver.bytes(),
                            .path = file,
                            .stop = std::move(stop),
                            .on_pause = std::move(on_pause)}));
  absl::Status status = MountSquashfs(file, mounted, kernel);
  const bool is_mounted = status.ok();
  if (is_mounted) {
    const std::string inside = FileText(mounted + "/kernel-release", 4096);
    status = CheckDriverKernel(std::string(absl::StripAsciiWhitespace(inside)), kernel);
  }
  if (status.ok()) status = LoadModules(mounted);
  if (status.ok()) {
    std::ofstream(absl::StrCat(node_folder, "/", kDriverLoaded)) << driver.digest() << "\n";
    return status;
  }
  if (is_mounted) umount2(mounted.c_str(), MNT_DETACH);
  unlink(file.c_str());  // it is in memory
  return status;
}

uint64_t DriverMemoryBytes(const std::string& node_folder, const proto::NodeDriver* named) {
  std::error_code error;
  const std::string libraries = DriverLibraries(node_folder);
  const uintmax_t bytes =
      std::filesystem::file_size(absl::StrCat(node_folder, "/", kDriverFile), error);
  if (!libraries.empty()) return error ? 0 : bytes;
  return named != nullptr ? named->bytes() : 0;
}

std::string DriverLibraries(const std::string& node_folder) {
  const std::string mounted = absl::StrCat(node_folder, "/", kDriverFolder);
  std::error_code error;
  const bool is_there =
      std::filesystem::exists(mounted + "/kernel-release", error) &&
      std::filesystem::exists(absl::StrCat(node_folder, "/", kDriverLoaded), error);
  return is_there ? mounted + "/lib" : "";
}

bool HasCuda(const std::string& libraries) {
  std::error_code error;
  return !libraries.empty() && std::filesystem::exists(libraries + "/libcuda.so.1", error);
}

}  // namespace outboard::worker
