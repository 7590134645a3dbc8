// A library for LD_PRELOAD: counts what a process allocates and locks, and who asks for it: Postern
// and the program, XLA, or others. At the end it says so on the standard error, in a line of JSON.
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
void __libc_free(void*);
}

namespace {

enum What { allocations, locks, futexes, kinds };
enum Whose { ours, xla, others, owners };
std::atomic<long> counts[kinds][owners];
constinit thread_local bool inside = false;

Whose owner_of(void* caller) {
  Dl_info where;
  if (!dladdr(caller, &where) || !where.dli_fname) return others;
  const char* const slash = std::strrchr(where.dli_fname, '/');
  const char* const file = slash ? slash + 1 : where.dli_fname;
  if (std::strstr(file, "pjrt")) return xla;
  if (std::strstr(file, "libpostern") || !std::strstr(file, ".so")) return ours;
  return others;
}

[[gnu::noinline]] void add(What what, void* caller) {
  if (inside) return;
  inside = true;  // who looks may allocate
  ++counts[what][owner_of(caller)];
  inside = false;
}

template <class F>
F* next(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void* aligned(std::size_t alignment, std::size_t size, void* caller) {
  add(allocations, caller);
  return __libc_memalign(alignment, size);
}

void* or_throw(void* memory) {
  if (!memory) throw std::bad_alloc();
  return memory;
}

struct AtEnd {
  ~AtEnd() {
    constexpr const char* names[] = {"allocations", "locks", "futexes"};
    constexpr const char* whose[] = {"ours", "xla", "others"};
    std::fputs("counts: {", stderr);
    for (int k = 0; k < kinds; ++k)
      for (int o = 0; o < owners; ++o)
        std::fprintf(stderr, "%s\"%s %s\": %ld", k + o ? ", " : "", names[k], whose[o],
                     counts[k][o].load());
    std::fputs("}\n", stderr);
  }
} at_end;

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

void* malloc(std::size_t size) {
  add(allocations, CALLER);
  return __libc_malloc(size);
}
void* calloc(std::size_t n, std::size_t size) {
  add(allocations, CALLER);
  return __libc_calloc(n, size);
}
void* realloc(void* memory, std::size_t size) {
  add(allocations, CALLER);
  return __libc_realloc(memory, size);
}
void* memalign(std::size_t alignment, std::size_t size) { return aligned(alignment, size, CALLER); }
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  return aligned(alignment, size, CALLER);
}
int posix_memalign(void** out, std::size_t alignment, std::size_t size) {
  *out = aligned(alignment, size, CALLER);
  return *out ? 0 : ENOMEM;
}

int pthread_mutex_lock(pthread_mutex_t* m) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_lock");
  add(locks, CALLER);
  return real(m);
}
int pthread_mutex_trylock(pthread_mutex_t* m) {
  static auto* const real = next<int(pthread_mutex_t*)>("pthread_mutex_trylock");
  add(locks, CALLER);
  return real(m);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* m) {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_rdlock");
  add(locks, CALLER);
  return real(m);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* m) {
  static auto* const real = next<int(pthread_rwlock_t*)>("pthread_rwlock_wrlock");
  add(locks, CALLER);
  return real(m);
}
/// XLA's locks are abseil's, which ask the kernel so when they wait or wake.
long syscall(long number, ...) {
  static auto* const real = next<long(long, ...)>("syscall");
  add(futexes, CALLER);
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& x : a) x = va_arg(list, long);
  va_end(list);
  return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
}

void* operator new(std::size_t size) {
  add(allocations, CALLER);
  return or_throw(__libc_malloc(size));
}
void* operator new[](std::size_t size) {
  add(allocations, CALLER);
  return or_throw(__libc_malloc(size));
}
void* operator new(std::size_t size, std::align_val_t at) {
  return or_throw(aligned(static_cast<std::size_t>(at), size, CALLER));
}
void* operator new[](std::size_t size, std::align_val_t at) {
  return or_throw(aligned(static_cast<std::size_t>(at), size, CALLER));
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  add(allocations, CALLER);
  return __libc_malloc(size);
}
void operator delete(void* p) noexcept { __libc_free(p); }
void operator delete[](void* p) noexcept { __libc_free(p); }
void operator delete(void* p, std::size_t) noexcept { __libc_free(p); }
void operator delete[](void* p, std::size_t) noexcept { __libc_free(p); }
void operator delete(void* p, std::align_val_t) noexcept { __libc_free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { __libc_free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { __libc_free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { __libc_free(p); }
