// Objects of C++ that terms refer to. The VM destroys one when no term does any more.
#pragma once
#include <erl_nif.h>

#include <atomic>
#include <map>
#include <new>
#include <string_view>
#include <utility>

namespace postern_beam {

/// How many objects of each kind there are. Filled while the module is loaded.
using Counts = std::map<std::string_view, std::atomic<long>>;
inline Counts& alive() {
  static Counts* const all = new Counts;  // objects may end after the statics have
  return *all;
}

/// `T` may have `down(env, pid)`, called when a process that it watches has ended.
template <class T>
class Resource {
 public:
  static bool open(ErlNifEnv* env, const char* name) {
    ErlNifResourceTypeInit init{};
    init.dtor = [](ErlNifEnv*, void* object) {
      static_cast<T*>(object)->~T();
      --*count();
    };
    count() = &alive()[name];
    if constexpr (requires(T & t, ErlNifEnv * e, const ErlNifPid& p) { t.down(e, p); })
      init.down = [](ErlNifEnv* e, void* object, ErlNifPid* pid, ErlNifMonitor*) {
        static_cast<T*>(object)->down(e, *pid);
      };
    const auto flags = static_cast<ErlNifResourceFlags>(ERL_NIF_RT_CREATE | ERL_NIF_RT_TAKEOVER);
    type() = enif_open_resource_type_x(env, name, &init, flags, nullptr);
    return type() != nullptr;
  }

  /// The caller holds it until enif_release_resource.
  template <class... A>
  static T* make(A&&... arguments) {
    void* const place = enif_alloc_resource(type(), sizeof(T));
    T* const made = new (place) T(std::forward<A>(arguments)...);
    ++*count();
    return made;
  }
  /// Of a term; null when it is no such object.
  static T* get(ErlNifEnv* env, ERL_NIF_TERM term) {
    void* object = nullptr;
    if (!enif_get_resource(env, term, type(), &object)) return nullptr;
    return static_cast<T*>(object);
  }

 private:
  static ErlNifResourceType*& type() {
    static ErlNifResourceType* one = nullptr;
    return one;
  }
  static std::atomic<long>*& count() {
    static std::atomic<long>* one = nullptr;
    return one;
  }
};

/// Makes a term of an object that make() gave, and leaves it to the terms.
template <class T>
ERL_NIF_TERM term_of(ErlNifEnv* env, T* object) {
  const ERL_NIF_TERM out = enif_make_resource(env, object);
  enif_release_resource(object);
  return out;
}

}  // namespace postern_beam
