#include "worker/sandbox/driver_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "worker/sandbox/sandbox_limits.h"

namespace outboard::worker {
namespace {

namespace fs = std::filesystem;

// Where the new root is built: a folder that every machine has.
constexpr char kNewRoot[] = "/proc";

constexpr uint64_t kReadOnly = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID;
constexpr uint64_t kData = kReadOnly | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
// Code is mapped from it; nothing there is a program that could be run (driver_calls.cc).
constexpr uint64_t kLibraries = kReadOnly | MOUNT_ATTR_NODEV;
// A device file can be written wherever it lies: what is read-only is the folder.
constexpr uint64_t kDevices = kReadOnly | MOUNT_ATTR_NOEXEC;

// The dynamic linker's folders, the machine's description that CUDA reads, and files that any
// program opens (after what nvidia-container-toolkit and Docker give a container).
constexpr std::pair<const char*, uint64_t> kOfAll[] = {
    {"/usr/lib", kLibraries},          {"/usr/lib64", kLibraries}, {"/usr/local/lib", kLibraries},
    {"/usr/local/nvidia", kLibraries}, {"/lib", kLibraries},       {"/lib64", kLibraries},
    {"/etc/ld.so.cache", kData},       {"/sys/bus/pci", kData},    {"/sys/dev/char", kData},
    {"/sys/devices", kData},           {"/sys/module", kData},     {"/dev/null", kDevices},
    {"/dev/zero", kDevices},           {"/dev/full", kDevices},    {"/dev/random", kDevices},
    {"/dev/urandom", kDevices},
};
// OpenCL: the loader's list of drivers, PoCL's own library of functions, and graphics cards.
constexpr std::pair<const char*, uint64_t> kOfOpenCl[] = {
    {"/etc/OpenCL", kData},    {"/usr/share/pocl", kData}, {"/sys/class/drm", kData},
    {"/sys/class/kfd", kData}, {"/dev/dri", kDevices},     {"/dev/kfd", kDevices},
};
// Its links to libraries are shown, by which Debian's names lead to the ones that were chosen.
constexpr char kAlternatives[] = "/etc/alternatives";
// Of what is shown: the machine's interfaces, and files that serve as its disks.
constexpr const char* kHidden[] = {"/sys/devices/virtual/net", "/sys/devices/virtual/block"};
// Of a machine whose kernel makes no new /proc here, since parts of its own are hidden.
constexpr const char* kOfProc[] = {"cpuinfo",     "meminfo", "devices", "version",
                                   "filesystems", "driver",  "self"};

// Each names a library.
constexpr const char* kLibraryVariables[] = {"OUTBOARD_CUDA_DRIVER", "OUTBOARD_NVML",
                                             "OUTBOARD_NCCL", "OCL_ICD_FILENAMES"};

absl::string_view ValueOf(const char* variable) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? "" : value;
}
bool IsOpenCl() { return ValueOf("OUTBOARD_DEVICE") == "opencl"; }

// /dev/nvidia0
bool IsGpuFile(absl::string_view name) {
  int number = 0;
  return absl::ConsumePrefix(&name, "nvidia") && absl::SimpleAtoi(name, &number) && number >= 0;
}
bool IsRenderFile(absl::string_view name) { return absl::StartsWith(name, "renderD"); }

// The names in a folder, sorted; none if it cannot be read.
std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// NVIDIA's: those of the GPUs and of the driver itself, and what has to be open for shares of one.
std::vector<std::string> NvidiaFiles() {
  std::vector<std::string> files;
  for (const std::string& name : NamesIn("/dev"))
    if (IsGpuFile(name) || name == "nvidiactl" || name == "nvidia-uvm" ||
        name == "nvidia-uvm-tools" || name == "nvidia-caps")
      files.push_back(absl::StrCat("/dev/", name));
  return files;
}

// Folders that libraries named by the operator lie in. Which of the files there are theirs nobody
// knows, but all of them are libraries: those alone are shown.
std::vector<std::string> NamedLibraryFolders() {
  std::vector<std::string> folders;
  const auto add = [&](const fs::path& folder) {
    if (folder.is_absolute() && std::ranges::find(folders, folder.string()) == folders.end())
      folders.push_back(folder.string());
  };
  for (const char* const variable : kLibraryVariables) {
    const std::string named(ValueOf(variable));
    if (!absl::StrContains(named, '/')) continue;
    std::error_code error;
    const fs::path path = fs::absolute(named, error).lexically_normal();
    setenv(variable, path.c_str(), 1);  // the present folder is about to be another
    add(path.parent_path());
  }
  for (const absl::string_view folder : absl::StrSplit(ValueOf("LD_LIBRARY_PATH"), ':'))
    add(fs::path(std::string(folder)).lexically_normal());
  return folders;
}

bool IsWithin(const std::string& path, const std::string& folder) {
  return path == folder || absl::StartsWith(path, absl::StrCat(folder, "/"));
}

std::string Inside(const std::string& path) { return kNewRoot + path; }

}  // namespace

DriverRoot::~DriverRoot() {
  for (const std::vector<Shown>* const all : {&shown_, &proc_})
    for (const Shown& shown : *all)
      if (shown.tree >= 0) close(shown.tree);
}

bool DriverRoot::Need(bool done, const std::string& what) {
  if (!done && failed_.empty()) failed_ = absl::StrCat(what, ": ", strerror(errno));
  return done && failed_.empty();
}

std::string DriverRoot::Take() {
  // Nothing of what follows is told to the namespace that this one was copied from.
  Need(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mount (private)");
  for (const auto& [path, attributes] : kOfAll) TakePath(path, attributes, shown_);
  TakeAlternatives();
  if (IsOpenCl()) {
    for (const auto& [path, attributes] : kOfOpenCl) TakePath(path, attributes, shown_);
    if (const std::string vendors(ValueOf("OCL_ICD_VENDORS")); absl::StartsWith(vendors, "/"))
      TakePath(vendors, kData, shown_);
  }
  for (const std::string& path : NvidiaFiles()) TakePath(path, kDevices, shown_);
  for (const std::string& folder : NamedLibraryFolders()) TakeLibraries(folder);
  for (const char* const name : kOfProc) TakePath(absl::StrCat("/proc/", name), kData, proc_);
  return failed_;
}

bool DriverRoot::IsShown(const std::string& path) const {
  return std::ranges::any_of(folders_, [&](const auto& folder) { return IsWithin(path, folder); });
}

// A file, a folder with all that is in it, or a link to what is shown already, as /lib is; nothing
// if it is not there.
void DriverRoot::TakePath(const std::string& path, uint64_t attributes, std::vector<Shown>& to) {
  struct stat info {};
  if (!failed_.empty() || lstat(path.c_str(), &info) != 0) return;
  if (S_ISLNK(info.st_mode)) {
    std::error_code error;
    const std::string real = fs::canonical(path, error).string();
    if (error) return;  // it leads nowhere
    if (IsShown(real)) {
      // Not its own text: that may lead by folders that are not shown.
      to.push_back({.path = path, .link = real});
      return;
    }
    if (stat(path.c_str(), &info) != 0) return;
  }
  const int tree = static_cast<int>(
      syscall(SYS_open_tree, AT_FDCWD, path.c_str(),
              OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | static_cast<unsigned>(AT_RECURSIVE)));
  if (!Need(tree >= 0, absl::StrCat("open_tree ", path))) return;
  to.push_back({.path = path, .tree = tree, .is_folder = S_ISDIR(info.st_mode)});
  if (S_ISDIR(info.st_mode)) folders_.push_back(path);
  mount_attr set{};
  set.attr_set = attributes;
  Need(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &set, sizeof set) == 0,
       absl::StrCat("mount_setattr ", path));
}

void DriverRoot::TakeLibraries(const std::string& folder) {
  std::error_code error;
  const std::string real = fs::canonical(folder, error).string();
  if (error || std::ranges::any_of(folders_, [&](const std::string& shown) {
        return IsWithin(real, shown) && IsWithin(folder, shown);
      }))
    return;
  std::vector<std::string> paths;
  for (const std::string& name : NamesIn(folder)) {
    const std::string path = absl::StrCat(folder, "/", name);
    const bool is_library = absl::EndsWith(name, ".so") || absl::StrContains(name, ".so.");
    if (is_library && fs::is_regular_file(path, error)) paths.push_back(path);
  }
  // Those that a variable names come first: of too many the last are left out.
  std::stable_partition(paths.begin(), paths.end(), [](const std::string& path) {
    return std::ranges::any_of(kLibraryVariables,
                               [&](const char* variable) { return ValueOf(variable) == path; });
  });
  if (paths.size() > limits::kNamedLibrariesMax) paths.resize(limits::kNamedLibrariesMax);
  for (const std::string& path : paths) TakePath(path, kLibraries, shown_);
}

// The links there that lead to what is shown already, and no others.
void DriverRoot::TakeAlternatives() {
  for (const std::string& name : NamesIn(kAlternatives)) {
    const std::string path = absl::StrCat(kAlternatives, "/", name);
    std::error_code error;
    const std::string real = fs::canonical(path, error).string();
    if (!error && fs::is_symlink(path, error) && IsShown(real))
      TakePath(path, kLibraries, shown_);
  }
}

std::string DriverRoot::Enter(SandboxParts parts) {
  umask(022);  // the folders are root's where there are no user namespaces
  MakeScratch("", "mode=0755,size=1m,nr_inodes=16k", MS_NOEXEC);
  MakeScratch("/dev/shm", limits::kScratchMount, MS_NOEXEC);
  // PoCL maps what it has compiled there.
  MakeScratch("/tmp", limits::kScratchMount, IsOpenCl() ? 0 : MS_NOEXEC);
  MakeProc(parts);
  Place(shown_);
  for (const char* const path : kHidden)
    if (failed_.empty() && access(Inside(path).c_str(), F_OK) == 0)
      MakeScratch(path, "mode=0555,size=4k,nr_inodes=2", MS_NOEXEC | MS_RDONLY);
  if (!failed_.empty()) return failed_;
  Need(chdir(kNewRoot) == 0, "chdir");
  // pivot_root(2), "pivot_root(".", ".")": the old root comes to lie over the new one.
  Need(syscall(SYS_pivot_root, ".", ".") == 0, "pivot_root");
  Need(umount2(".", MNT_DETACH) == 0, "umount");
  Need(chdir("/") == 0, "chdir /");
  mount_attr sealed{};
  sealed.attr_set = kData;
  Need(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &sealed, sizeof sealed) == 0, "seal /");
  for (const char* const variable : {"HOME", "TMPDIR", "XDG_CACHE_HOME"})
    setenv(variable, "/tmp", 1);
  unsetenv("POCL_CACHE_DIR");
  return failed_;
}

void DriverRoot::MakeFolder(const std::string& path) {
  if (!failed_.empty()) return;
  std::error_code error;
  fs::create_directories(Inside(path), error);
  errno = error.value();
  Need(!error, absl::StrCat("a folder for ", path));
}

void DriverRoot::MakeScratch(const std::string& path, const char* options, unsigned long flags) {
  if (!path.empty()) MakeFolder(path);
  if (failed_.empty())
    Need(mount("outboard", Inside(path).c_str(), "tmpfs", MS_NOSUID | MS_NODEV | flags, options) ==
             0,
         absl::StrCat("mount (tmpfs) ", path));
}

void DriverRoot::MakeProc(SandboxParts parts) {
  MakeFolder("/proc");
  if (!failed_.empty()) return;
  if (parts.has(SandboxPart::kProcesses) && mount("outboard", Inside("/proc").c_str(), "proc",
                                                  MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) == 0) {
    // The machine's settings are below it.
    mount_attr set{};
    set.attr_set = kData;
    Need(syscall(SYS_mount_setattr, AT_FDCWD, Inside("/proc").c_str(), 0, &set, sizeof set) == 0,
         "mount_setattr /proc");
    return;
  }
  Place(proc_);
  const std::string number = absl::StrCat("/proc/", getpid());
  if (failed_.empty())
    Need(symlink("self", Inside(number).c_str()) == 0, absl::StrCat("a link for ", number));
}

void DriverRoot::Place(std::vector<Shown>& all) {
  for (const Shown& shown : all) {
    const std::string inside = Inside(shown.path);
    MakeFolder(shown.is_folder ? shown.path : fs::path(shown.path).parent_path().string());
    if (!failed_.empty()) return;
    if (!shown.link.empty()) {
      Need(symlink(shown.link.c_str(), inside.c_str()) == 0,
           absl::StrCat("a link for ", shown.path));
      continue;
    }
    if (!shown.is_folder) {
      const int file = open(inside.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
      if (Need(file >= 0, absl::StrCat("a file for ", shown.path))) close(file);
    }
    if (failed_.empty())
      Need(syscall(SYS_move_mount, shown.tree, "", AT_FDCWD, inside.c_str(),
                   MOVE_MOUNT_F_EMPTY_PATH) == 0,
           absl::StrCat("move_mount ", shown.path));
  }
}

std::string ForbidOtherWrites() {
  constexpr int kTruncateSince = 3;                  // version of Landlock
  constexpr uint64_t kTruncate = uint64_t{1} << 14;  // LANDLOCK_ACCESS_FS_TRUNCATE, of Linux 6.2
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return "";
  landlock_ruleset_attr rules{};
  rules.handled_access_fs =
      LANDLOCK_ACCESS_FS_WRITE_FILE | (version >= kTruncateSince ? kTruncate : 0);
  const int set = static_cast<int>(syscall(SYS_landlock_create_ruleset, &rules, sizeof rules, 0));
  std::string failed = set < 0 ? absl::StrCat("landlock: ", strerror(errno)) : "";
  for (const char* const path : {"/tmp", "/dev", "/proc/self/"}) {
    landlock_path_beneath_attr below{};
    below.allowed_access = rules.handled_access_fs;
    below.parent_fd = open(path, O_PATH | O_CLOEXEC);
    if (failed.empty() &&
        syscall(SYS_landlock_add_rule, set, LANDLOCK_RULE_PATH_BENEATH, &below, 0) != 0)
      failed = absl::StrCat("landlock, ", path, ": ", strerror(errno));
    if (below.parent_fd >= 0) close(below.parent_fd);
  }
  if (failed.empty() && syscall(SYS_landlock_restrict_self, set, 0) != 0)
    failed = absl::StrCat("landlock: ", strerror(errno));
  if (set >= 0) close(set);
  return failed;
}

std::string DeviceFileThatIsClosed() {
  if (IsOpenCl()) return "";  // of several drivers, which say so themselves
  for (const std::string& path : NvidiaFiles())
    if (path != "/dev/nvidia-caps" && access(path.c_str(), R_OK | W_OK) != 0)
      return absl::StrCat(path, " cannot be opened by the executors' id: ", strerror(errno));
  return "";
}

int CountDeviceFiles() {
  int count = 0;
  for (const std::string& name : NamesIn(IsOpenCl() ? "/dev/dri" : "/dev"))
    count += IsOpenCl() ? IsRenderFile(name) : IsGpuFile(name);
  // Of MIG: all but the two that are always there, to configure and to watch it.
  if (!IsOpenCl())
    for (const std::string& name : NamesIn("/dev/nvidia-caps"))
      count += name != "nvidia-cap1" && name != "nvidia-cap2";
  return count;
}

}  // namespace outboard::worker
