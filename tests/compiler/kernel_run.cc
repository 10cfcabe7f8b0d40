#include "tests/compiler/kernel_run.h"

#include <sys/mman.h>

#include <cstring>

#include "base/check.h"
#include "runtime/cpu/elf_loader.h"

namespace outboard::test {

struct LoadedKernel::Impl {
  CompiledKernel kernel;
  cpu::LoadedObject object;
};

LoadedKernel::LoadedKernel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadedKernel::~LoadedKernel() = default;
const CompiledKernel& LoadedKernel::kernel() const { return impl_->kernel; }

absl::StatusOr<std::unique_ptr<LoadedKernel>> LoadedKernel::Load(CompiledKernel kernel) {
  OB_ASSIGN_OR_RETURN(cpu::LoadedObject object,
                      cpu::LoadedObject::Load(kernel.object, kernel.symbol));
  return std::unique_ptr<LoadedKernel>(
      new LoadedKernel(std::make_unique<Impl>(Impl{std::move(kernel), std::move(object)})));
}

void LoadedKernel::Run(void* const* buffers, int64_t begin, int64_t end) const {
  impl_->object.function()(buffers, begin, end);
}

void LoadedKernel::RunGuarded(Buffers& buffers, int pieces) const {
  constexpr size_t kPage = 4096;
  struct Mapping {
    char* base;
    size_t size;
    char* data;
  };
  std::vector<Mapping> mappings;
  std::vector<void*> pointers;
  for (const std::string& buffer : buffers) {
    const size_t body = (buffer.size() + kPage - 1) / kPage * kPage;
    char* const base = static_cast<char*>(
        mmap(nullptr, body + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OB_CHECK(base != MAP_FAILED);
    if (body > 0) OB_CHECK(mprotect(base + kPage, body, PROT_READ | PROT_WRITE) == 0);
    char* const data = base + kPage + body - buffer.size();
    std::memcpy(data, buffer.data(), buffer.size());
    mappings.push_back({base, body + 2 * kPage, data});
    pointers.push_back(data);
  }
  const int64_t tasks = kernel().tasks;
  for (int i = pieces; i-- > 0;) Run(pointers.data(), tasks * i / pieces, tasks * (i + 1) / pieces);
  for (size_t i = 0; i < buffers.size(); ++i) {
    std::memcpy(buffers[i].data(), mappings[i].data, buffers[i].size());
    munmap(mappings[i].base, mappings[i].size);
  }
}

}  // namespace outboard::test
