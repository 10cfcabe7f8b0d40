// By its C interface, of whose structures only the addresses are needed: descriptions of memory and
// operations are written by the library into room that is large enough for either.
#include "tests/bench/one_dnn.h"

#include <dlfcn.h>

#include <array>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::bench {
namespace {

constexpr char kLibrary[] = "libdnnl.so.2";

// dnnl_types.h of version 2.6.
constexpr int kCpu = 1, kBf16 = 2, kRowMajor = 3, kInOrder = 1;
constexpr int kSource = 1, kDestination = 17, kWeights = 33;
struct alignas(64) Description {
  std::array<char, 8192> bytes;  // an operation's, the longest, takes about 3,500
};
struct Argument {
  int role;
  void* memory;
};

// int f(...), 0 where it worked.
template <typename... Args>
void Call(void* library, const char* name, Args... args) {
  auto* const function = reinterpret_cast<int (*)(Args...)>(dlsym(library, name));
  OB_CHECK(function != nullptr);
  OB_CHECK(function(args...) == 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<OneDnn>> OneDnn::Load(int threads) {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return absl::NotFoundError(absl::StrCat(kLibrary, " is not installed (libdnnl2)"));
  auto* const set_threads = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
  if (set_threads == nullptr)
    return absl::NotFoundError(absl::StrCat(kLibrary, " does not run on OpenMP"));
  set_threads(threads);
  std::unique_ptr<OneDnn> dnn(new OneDnn);
  dnn->library_ = library;
  Call(library, "dnnl_engine_create", &dnn->engine_, kCpu, size_t{0});
  Call(library, "dnnl_stream_create", &dnn->stream_, dnn->engine_, kInOrder);
  return dnn;
}

std::function<void()> OneDnn::MatMul(int64_t n, uint16_t* a, uint16_t* b, uint16_t* c) {
  const std::array<int64_t, 12> dims = {n, n};
  Description matrix, operation;
  Call(library_, "dnnl_memory_desc_init_by_tag", &matrix, 2, dims.data(), kBf16, kRowMajor);
  void *const none = nullptr, *primitive_description = nullptr, *primitive = nullptr;
  Call(library_, "dnnl_matmul_desc_init", &operation, &matrix, &matrix, none, &matrix);
  Call(library_, "dnnl_primitive_desc_create", &primitive_description, &operation, none, engine_,
       none);
  Call(library_, "dnnl_primitive_create", &primitive, primitive_description);
  std::array<Argument, 3> arguments = {{{kSource, a}, {kWeights, b}, {kDestination, c}}};
  for (Argument& argument : arguments) {
    void* memory = nullptr;
    Call(library_, "dnnl_memory_create", &memory, &matrix, engine_, argument.memory);
    argument.memory = memory;
  }
  return [library = library_, stream = stream_, primitive, arguments] {
    Call(library, "dnnl_primitive_execute", primitive, stream, int{arguments.size()},
         arguments.data());
    Call(library, "dnnl_stream_wait", stream);
  };
}

}  // namespace outboard::bench
