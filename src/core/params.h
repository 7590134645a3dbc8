// Parameters of an equation: small structs, from which print, hash and equality derive. `tell_all`
// asks, in this order:
//   `fields`      of a struct with a member that is hidden, left out, told only sometimes, by a
//                 function, under another name or in another place, or that has no text, or with
//                 more than 16. It tells every member, or leaves it out; else it does not compile.
//   Described<S>  of one that goes to files: core/described.h.
//   the struct    itself, where that says it all: each member by its name, as declared. A member
//                 that is a struct is told by its own members, in its place.
#pragma once
#include <postern/attributes.h>
#include <postern/detail/aggregate.h>
#include <postern/type.h>

#include <concepts>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/text.h"

namespace postern::internal {

std::string text_of(const std::vector<bool>& bits);         // "TFT"
std::string text_of(const std::vector<std::string>& list);  // words as they are, others in quotes

/// Returns by attribute a digit that says which of its types it has: 1 and 1.0 have one text.
std::string kinds_of(const Attributes& attributes);
std::string named_text(const std::string& name, const Attributes& attributes);  // "f{n = 1}"

template <class S>
struct Described;
template <class S>
concept IsDescribed = requires {
  Described<S>::fields;
};

template <class S>
concept IsPlainStruct = detail::is_aggregate_container<S> && !requires {
  std::tuple_size<S>::value;  // std::array
};

struct Program;
using ProgramPtr = std::shared_ptr<const Program>;

/// Sees the fields of a parameter struct, one after another. What it does with them is its own
/// business: print, key, collect programs.
class FieldSink {
 public:
  virtual ~FieldSink() = default;
  virtual void text(std::string_view name, std::string_view value) = 0;  // already readable; exact
  virtual void program(std::string_view name, const ProgramPtr& value) = 0;
  // An object that is equal only to itself; never printed.
  virtual void identity(std::string_view name, const void* value) = 0;
  virtual void hidden(std::string_view, std::string_view) {}  // in the key alone
  virtual bool wants_text() const { return true; }

  // A pointer is none, though it converts to one.
  void operator()(std::string_view name, std::same_as<bool> auto v) { text(name, bool_text(v)); }
  void operator()(std::string_view name, int value) { text(name, std::to_string(value)); }
  void operator()(std::string_view name, std::int64_t value) { text(name, std::to_string(value)); }
  void operator()(std::string_view name, std::uint64_t value) { text(name, std::to_string(value)); }
  void operator()(std::string_view name, double value);
  void operator()(std::string_view name, std::string_view value) { text(name, value); }
  void operator()(std::string_view name, DType value) { text(name, to_string(value)); }
  void operator()(std::string_view name, const Type& value) {
    text(name, to_string(value));
    if (value.weak) hidden(name, "weak");
  }
  void operator()(std::string_view name, const std::vector<Type>& value) {
    text(name, to_string(value));
    for (const Type& type : value) hidden(name, type.weak ? "weak" : "");
  }
  void operator()(std::string_view name, const Dims& value) { text(name, dims_to_string(value)); }
  void operator()(std::string_view name, const std::vector<int>& value);
  void operator()(std::string_view name, const std::vector<bool>& value);
  void operator()(std::string_view name, const std::vector<std::string>& value);
  void operator()(std::string_view name, const Attributes& value) {
    text(name, to_string(value));
    hidden(name, kinds_of(value));
  }
  void operator()(std::string_view name, const ProgramPtr& value) { program(name, value); }
  template <IsPlainStruct S>
  void operator()(std::string_view, const S& value) {
    tell_all(value, *this);
  }
};
template <class T>
concept IsTold = requires(FieldSink& sink, const T& value) {
  sink("", value);
};

/// Tells another sink what no print says.
class Hidden final : public FieldSink {
 public:
  explicit Hidden(FieldSink& to) : to_(to) {}
  void text(std::string_view name, std::string_view value) override { to_.hidden(name, value); }
  void hidden(std::string_view name, std::string_view value) override { to_.hidden(name, value); }
  void program(std::string_view name, const ProgramPtr& p) override { to_.program(name, p); }
  void identity(std::string_view name, const void* value) override { to_.identity(name, value); }

 private:
  FieldSink& to_;
};

/// A sink that has been given `n` members of a struct, which the type counts for tell_all to check.
/// `fields` goes from one to the next, and gives back the last:
///
///     auto fields(Fields sink) const { return sink.field("dtype", dtype).hidden("weak", weak); }
template <std::size_t n>
class FieldChain {
 public:
  using Next = FieldChain<n + 1>;
  static constexpr std::size_t told = n;
  explicit FieldChain(FieldSink& sink) : sink_(sink) {}

  template <class T>
  Next field(const char* name, const T& value) const {
    sink_(name, value);
    return Next(sink_);
  }
  template <class T>
  Next when(bool needed, const char* name, const T& value) const {
    if (needed) sink_(name, value);
    return Next(sink_);
  }
  Next identity(const char* name, const void* value) const {
    sink_.identity(name, value);
    return Next(sink_);
  }
  template <class T>
  Next hidden(const char* name, const T& value) const {
    if (sink_.wants_text()) Hidden{sink_}(name, value);
    return Next(sink_);
  }
  /// Leaves out one that others determine.
  template <class T>
  Next left_out(const T&) const {
    return Next(sink_);
  }
  /// Describes one member, of which `tell` tells the sink.
  template <class F>
  Next by(const F& tell) const {
    tell(sink_);
    return Next(sink_);
  }

 private:
  FieldSink& sink_;
};
using Fields = FieldChain<0>;

/// Tells the sink all members of a struct: by its `fields`, else as it is described, else each.
template <class P>
void tell_all(const P& value, FieldSink& sink) {
  if constexpr (requires { &P::fields; }) {
    constexpr std::size_t told = decltype(value.fields(Fields(sink)))::told;
    static_assert(told == detail::field_count<P, told + 1>(),
                  "`fields` must tell each member, or say that it is left_out");
    value.fields(Fields(sink));
  } else if constexpr (IsDescribed<P>) {
    tell_fields(value, sink);
  } else {
    static_assert(std::is_aggregate_v<P> && (std::is_empty_v<P> || detail::field_count<P>() > 0),
                  "what is no plain aggregate needs `fields`");
    static constexpr auto names = detail::field_names<P>();
    detail::with_fields(value, [&]<class... M>(const M&... member) {
      static_assert((IsTold<M> && ...), "a member has no text: the struct needs `fields`");
      [[maybe_unused]] const std::string_view* name = names.data();
      (sink(*name++, member), ...);
    });
  }
}

class Params {
 public:
  virtual ~Params() = default;
  virtual void fields(FieldSink& sink) const = 0;
};
using ParamsPtr = std::shared_ptr<const Params>;

template <class P>
struct ParamsOf final : Params {
  explicit ParamsOf(P p) : value(std::move(p)) {}
  void fields(FieldSink& sink) const override { tell_all(value, sink); }
  P value;
};

template <class P>
ParamsPtr make_params(P p) {
  return std::make_shared<const ParamsOf<P>>(std::move(p));
}

/// Returns the struct behind `params`; the primitive knows which it is.
template <class P>
const P& as(const Params& params) {
  return static_cast<const ParamsOf<P>&>(params).value;
}

std::string to_string(const Params& params);              // "axes=[0], keep=true"; empty for none
void append_key(std::string& key, const Params& params);  // equal keys mean equal parameters
std::vector<ProgramPtr> programs_of(const Params& params);

}  // namespace postern::internal
