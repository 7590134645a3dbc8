// From another XLA's call frame to a run of one site.
#include "guest/guest.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "core/check.h"
#include "host/fire.h"
#include "host/registry.h"
#include "pjrt/ffi_frame.h"

namespace postern::guest {

namespace {

alignas(64) std::byte nothing[64];  // where empty arrays point

using HostSitePtr = std::shared_ptr<const host::HostSite>;

/// A run of one site.
class GuestRun : public host::RunState, public std::enable_shared_from_this<GuestRun> {
 public:
  explicit GuestRun(HostSitePtr of) {
    static std::atomic<std::uint64_t> runs{0};
    number = runs.fetch_add(1, std::memory_order_relaxed) + 1;
    sites = of.get();
    site_count = 1;
    owner = std::move(of);
  }
  std::weak_ptr<host::RunState> handle() override { return weak_from_this(); }
};

/// What the attributes say, as views of XLA's memory.
struct Asked {
  std::string_view function, name, file, kind;
  std::int64_t line = 0, timeout = 0, every = 1;
};

struct TextAttribute {
  std::string_view name;
  std::string_view Asked::*member;
};
constexpr TextAttribute text_attributes[] = {{"function", &Asked::function},
                                             {"name", &Asked::name},
                                             {"file", &Asked::file},
                                             {"kind", &Asked::kind}};
struct NumberAttribute {
  std::string_view name;
  std::int64_t Asked::*member;
};
constexpr NumberAttribute number_attributes[] = {
    {"line", &Asked::line}, {"timeout", &Asked::timeout}, {"every", &Asked::every}};

std::string_view text_of(const XLA_FFI_ByteSpan& span) { return {span.ptr, span.len}; }

Asked asked_by(const XLA_FFI_CallFrame* frame) {
  Asked asked;
  const XLA_FFI_Attrs& attrs = frame->attrs;
  for (std::int64_t i = 0; i < attrs.size; ++i) {
    const std::string_view name = text_of(*attrs.names[i]);
    const auto* const text = std::ranges::find(text_attributes, name, &TextAttribute::name);
    if (text != std::end(text_attributes) && attrs.types[i] == XLA_FFI_AttrType_STRING) {
      asked.*text->member = text_of(*static_cast<const XLA_FFI_ByteSpan*>(attrs.attrs[i]));
      continue;
    }
    const std::int64_t* const value = pjrt::int_attribute(frame, i, name);
    const auto* const number = std::ranges::find(number_attributes, name, &NumberAttribute::name);
    check(value && number != std::end(number_attributes),
          "a custom call of Postern has the attribute '{}', which it does not take so", name);
    asked.*number->member = *value;
  }
  check(!asked.function.empty(), "a custom call of Postern names no function");
  check(
      asked.every >= 1 && asked.timeout >= 0,
      "a custom call of Postern: every must be at least 1, got {}, and timeout at least 0, got {}",
      asked.every, asked.timeout);
  check(asked.kind == "call" || asked.kind == "tap" || asked.kind == "async",
        "a custom call of Postern: kind must be call, tap or async, got '{}'", asked.kind);
  return asked;
}

/// The types and the memory of a frame's buffers, but for tokens.
void add_buffers(std::span<XLA_FFI_Buffer* const> buffers, std::vector<Type>& types,
                 std::vector<void*>& data) {
  for (const XLA_FFI_Buffer* b : buffers) {
    if (b->dtype == XLA_FFI_DataType_TOKEN) continue;
    DType dtype{};
    check(pjrt::dtype_of(b, dtype),
          "a custom call of Postern has a buffer of XLA's type {}, for "
          "which there is no dtype",
          static_cast<int>(b->dtype));
    check(bit_width(dtype) >= 8,
          "a custom call of Postern has a buffer of {}, whose elements have "
          "less than a byte; convert it before",
          to_string(dtype));
    const auto dims = pjrt::dims_of(b);
    types.push_back(make_type(dtype, Dims(dims.begin(), dims.end())));
    data.push_back(b->data ? b->data : nothing);
  }
}

/// Files' names for Places, which point at them; as many as a process has files.
const char* kept_name(std::string_view file) {
  static std::mutex guard;
  static auto* const names = new std::map<std::string, std::string, std::less<>>;
  const std::scoped_lock lock(guard);
  const auto found = names->find(file);
  if (found != names->end()) return found->second.c_str();
  return names->emplace(file, file).first->second.c_str();
}

std::shared_ptr<SiteSpec> spec_of(const Asked& asked, std::vector<Type> operands,
                                  std::vector<Type> results) {
  auto spec = std::make_shared<SiteSpec>();
  const bool tap = asked.kind != "call";
  spec->kind = tap ? SiteSpec::Kind::tap : SiteSpec::Kind::call;
  spec->word = tap ? "tap" : "call";
  spec->name = asked.name;
  spec->place = {kept_name(asked.file), "", static_cast<std::uint32_t>(asked.line)};
  spec->named.name = asked.function;
  spec->operands = std::move(operands);
  spec->results = std::move(results);
  spec->effect = Effect::unordered;
  spec->timeout = std::chrono::nanoseconds(asked.timeout);
  spec->async = asked.kind == "async";
  spec->every = asked.every;
  if (spec->has_counts()) spec->counts = std::make_shared<SiteCounts>();
  return spec;
}

/// Sites by what they are asked to be, each made once for a function that is registered; so that
/// what is counted of a place goes on.
HostSitePtr site_of(const Asked& asked, std::vector<Type> operands, std::vector<Type> results) {
  constexpr std::size_t most = 1024;
  using Sites = std::map<std::string, HostSitePtr>;
  static std::mutex guard;
  static auto* const made = new Sites;
  const std::string key = fmt::format("{}\n{}\n{}:{}\n{}\n{}\n{}\n{}\n{}", asked.function,
                                      asked.name, asked.file, asked.line, asked.kind, asked.timeout,
                                      asked.every, to_string(operands), to_string(results));
  const auto function = host::function_named(asked.function);
  Sites gone;  // after the lock: functions may go with them, and their ends may be anything
  const std::scoped_lock lock(guard);
  if (const auto found = made->find(key); found != made->end()) {
    if (function && found->second->function == function) return found->second;
    gone.insert(made->extract(found));
  }
  const auto spec = spec_of(asked, std::move(operands), std::move(results));
  if (!function)
    throw CallbackError(ErrorCode::unregistered,
                        fmt::format("{}: no host function is registered under '{}'",
                                    host::describe(*spec), asked.function),
                        Site{spec->name, spec->place}, 0, nullptr);
  check_signature(*spec, *function);
  if (made->size() >= most) gone.merge(*made);
  return (*made)[key] = std::make_shared<const host::HostSite>(spec, function);
}

struct Failures {
  std::mutex guard;
  std::uint64_t count = 0;
  std::deque<std::exception_ptr> last;
};
constexpr std::size_t failures_kept = 256;
Failures& failures() {
  static auto* const kept = new Failures;
  return *kept;
}

XLA_FFI_Error* keep(const XLA_FFI_CallFrame* frame, std::exception_ptr error) {
  const std::string what = host::describe(error);
  std::exception_ptr gone;  // after the lock
  std::unique_lock lock(failures().guard);
  failures().last.push_back(std::move(error));
  if (failures().last.size() > failures_kept) {
    gone = std::move(failures().last.front());
    failures().last.pop_front();
  }
  const std::uint64_t number = ++failures().count;
  lock.unlock();
  return pjrt::make_error(frame, ErrorCode::internal,
                          fmt::format("{} [postern failure {}]", what, number).c_str());
}

void fire(const XLA_FFI_CallFrame* frame) {
  const Asked asked = asked_by(frame);
  std::vector<Type> operands, results;
  std::vector<void*> data;
  add_buffers(pjrt::operands(frame), operands, data);
  add_buffers(pjrt::results(frame), results, data);
  const HostSitePtr site = site_of(asked, std::move(operands), std::move(results));
  const auto run = std::make_shared<GuestRun>(site);
  const int device = std::max(pjrt::device_ordinal(frame), 0);
  run->device = device;
  if (!host::fire(*run, *site, data.data(), device) ||
      !host::results_fit(*run, *site, data.data(), device))
    run->rethrow();
}

}  // namespace

XLA_FFI_Error* handle_call(XLA_FFI_CallFrame* frame) {
  if (frame->extension_start && pjrt::answer_metadata(frame)) return nullptr;
  try {
    fire(frame);
    return nullptr;
  } catch (...) {
    try {
      return keep(frame, std::current_exception());
    } catch (...) {
      return pjrt::make_error(frame, ErrorCode::resource_exhausted,
                              "postern: no memory for the text of a failure");
    }
  }
}

std::exception_ptr failure(std::uint64_t number) {
  const std::scoped_lock lock(failures().guard);
  const Failures& kept = failures();
  if (number > kept.count || number + kept.last.size() <= kept.count) return nullptr;
  return kept.last[kept.last.size() - 1 - static_cast<std::size_t>(kept.count - number)];
}

}  // namespace postern::guest
