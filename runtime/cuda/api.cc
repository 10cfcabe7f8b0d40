#include "runtime/cuda/api.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace outboard::cuda {
namespace {

std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// From the notes of the library as it is loaded: its file may be out of reach.
struct LoadedLibrary {
  uintptr_t base = 0;
  std::string build;
};
int FindBuild(dl_phdr_info* info, size_t /*bytes*/, void* library) {
  auto& found = *static_cast<LoadedLibrary*>(library);
  if (info->dlpi_addr != found.base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const char* at = reinterpret_cast<const char*>(info->dlpi_addr + part.p_vaddr);
    const char* const end = at + part.p_memsz;
    const auto padded = [](size_t bytes) { return (bytes + 3) / 4 * 4; };
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char* const name = at + sizeof note;
      const char* const value = name + padded(note.n_namesz);
      at = value + padded(note.n_descsz);
      if (at > end) break;
      if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 || std::memcmp(name, "GNU", 4) != 0)
        continue;
      found.build = absl::BytesToHexString(absl::string_view(value, note.n_descsz));
      return 1;
    }
  }
  return 1;
}

std::string BuildOf(void* handle) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return "";
  LoadedLibrary library{.base = map->l_addr};
  dl_iterate_phdr(FindBuild, &library);
  return library.build.empty() ? map->l_name : library.build;
}

}  // namespace

std::string DriverLibrary() {
  const char* const named = std::getenv("OUTBOARD_CUDA_DRIVER");
  return named != nullptr && *named != '\0' ? named : "libcuda.so.1";
}

absl::StatusOr<DriverApi> LoadApiFrom(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return absl::UnimplementedError(absl::StrCat("CUDA: no driver: ", dlerror(),
                                                 "; needed: NVIDIA's driver with CUDA ",
                                                 VersionText(kVersionMin), " or newer"));
  DriverApi api;
  api.build = BuildOf(handle);
  const char* missing = nullptr;
#define OUTBOARD_CUDA_LOAD(member, symbol, arguments) \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(handle, #symbol));
#define OUTBOARD_CUDA_REQUIRE(member, symbol, arguments) \
  OUTBOARD_CUDA_LOAD(member, symbol, arguments)          \
  if (api.member == nullptr && missing == nullptr) missing = #symbol;
  OUTBOARD_CUDA_FUNCTIONS(OUTBOARD_CUDA_REQUIRE)
  OUTBOARD_CUDA_OPTIONAL_FUNCTIONS(OUTBOARD_CUDA_LOAD)
#undef OUTBOARD_CUDA_REQUIRE
#undef OUTBOARD_CUDA_LOAD
  // The version first: an old driver lacks functions because it is old.
  if (api.cuDriverGetVersion != nullptr && api.cuDriverGetVersion(&api.version) == CUDA_SUCCESS &&
      api.version < kVersionMin)
    return absl::UnimplementedError(
        absl::StrCat("CUDA: the driver ", library, " is of CUDA ", VersionText(api.version),
                     "; needed: ", VersionText(kVersionMin), " or newer"));
  if (missing != nullptr)
    return absl::UnimplementedError(absl::StrCat(
        "CUDA: the driver ", library, ", of CUDA ", VersionText(api.version), ", has no function ",
        missing, "; needed: CUDA ", VersionText(kVersionMin), " or newer"));
  int count = 0;
  CUresult code = api.cuInit(0);
  if (code == CUDA_SUCCESS) code = api.cuDeviceGetCount(&count);
  if (code == CUDA_ERROR_NO_DEVICE || (code == CUDA_SUCCESS && count == 0))
    return absl::UnimplementedError(absl::StrCat("CUDA: the driver ", library, ", of CUDA ",
                                                 VersionText(api.version),
                                                 ", has no device; needed: one NVIDIA GPU"));
  if (code != CUDA_SUCCESS)
    return absl::UnimplementedError(absl::StrCat("CUDA: the driver ", library, ", of CUDA ",
                                                 VersionText(api.version),
                                                 ", does not start: ", Describe(api, code)));
  // A machine may have old GPUs beside new ones: one that will do is enough.
  if (const auto first = FindFirstGpu(api); !first.ok()) return first.status();
  return api;
}

absl::StatusOr<CUdevice> FindFirstGpu(const DriverApi& api) {
  const absl::StatusOr<CUdevice> first = FindGpu(api, 0);
  int count = 0;
  if (api.cuDeviceGetCount(&count) != CUDA_SUCCESS) count = 0;
  for (int ordinal = 1; ordinal < count && !first.ok(); ++ordinal)
    if (const absl::StatusOr<CUdevice> next = FindGpu(api, ordinal); next.ok()) return next;
  return first;
}

absl::StatusOr<CUdevice> FindGpu(const DriverApi& api, int ordinal) {
  // Kernels are written for sm_80 and later ones (compiler/render/ptx/ptx_renderer.h).
  constexpr int kMajorMin = 8;
  CUdevice device = 0;
  int major = 0, minor = 0;
  CUresult code = api.cuDeviceGet(&device, ordinal);
  if (code == CUDA_SUCCESS)
    code =
        api.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  if (code == CUDA_SUCCESS)
    code =
        api.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  if (code != CUDA_SUCCESS)
    return absl::UnimplementedError(
        absl::StrCat("CUDA: GPU ", ordinal, " does not answer: ", Describe(api, code)));
  if (major >= kMajorMin) return device;
  char name[256] = "";
  if (api.cuDeviceGetName(name, sizeof(name), device) != CUDA_SUCCESS) name[0] = '\0';
  name[sizeof(name) - 1] = '\0';
  return absl::UnimplementedError(
      absl::StrCat("CUDA: GPU ", ordinal, name[0] != '\0' ? ", " : "", name,
                   ", has compute capability ", major, ".", minor, "; needed: ", kMajorMin,
                   ".0 or newer (Ampere)"));
}

const absl::StatusOr<DriverApi>& LoadApi() {
  static const auto* const loaded = new absl::StatusOr<DriverApi>(LoadApiFrom(DriverLibrary()));
  return *loaded;
}

std::string Describe(const DriverApi& api, CUresult code) {
  const char *name = nullptr, *text = nullptr;
  if (api.cuGetErrorName(code, &name) != CUDA_SUCCESS) name = nullptr;
  if (api.cuGetErrorString(code, &text) != CUDA_SUCCESS) text = nullptr;
  return absl::StrCat(name != nullptr ? name : "CUDA error", " (", static_cast<int>(code), ")",
                      text != nullptr ? ": " : "", text != nullptr ? text : "");
}

}  // namespace outboard::cuda
