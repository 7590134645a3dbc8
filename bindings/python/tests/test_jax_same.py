"""Two things of a user's are the same only if they are one thing:
nothing is found by ==, by a text, or by a name that was not given for it.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import postern
import postern.jax as pj
from postern.jax import host_callback as hcb

F32 = jax.ShapeDtypeStruct((), jnp.float32)


class Equal:
    """Equal to all of its kind, as loggers of one name are."""

    def __init__(self, number):
        self.number = np.float32(number)
        self.got = []

    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 1

    def __call__(self, *given, **_):
        self.got.append(self.number)
        return self.number

    def method(self, *given):
        return self(*given)


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass
class Box:
    """A tree with an equal part that JAX does not trace."""

    value: object
    of: Equal

    def tree_flatten(self):
        return (self.value,), self.of

    @classmethod
    def tree_unflatten(cls, of, leaves):
        return cls(leaves[0], of)


def hooked(x, fn):
    return pj.with_hooks(lambda v: pj.hook("here", v), {"here": fn})(x)


# How a user hands a function over: each of two equal ones must be entered by its own program.
DOORS = {
    "call": lambda f, x: pj.call(f, F32, x),
    "unordered": lambda f, x: pj.call(f, F32, x, effect="unordered"),
    "ordered": lambda f, x: pj.call(f, F32, x, effect="ordered"),
    "limited": lambda f, x: pj.call(f, F32, x, timeout=100),
    "tap": lambda f, x: pj.tap(x, f),
    "async": lambda f, x: pj.tap(x, f, mode="async"),
    "every": lambda f, x: pj.tap(x, f, every=2),
    "derivatives": lambda f, x: pj.tap(x, f, derivatives=True),
    "hook": lambda f, x: hooked(x, f),
    "id_tap": lambda f, x: hcb.id_tap(f, x),
    "hcb.call": lambda f, x: hcb.call(f, x, result_shape=F32),
    "method": lambda f, x: pj.call(f.method, F32, x),
    "partial": lambda f, x: pj.call(functools.partial(f), F32, x),
    "told": lambda f, x: pj.call(pj.with_info(lambda v, info: f(v)), F32, x),
    "tree": lambda f, x: pj.call(lambda box: box.of(), F32, Box(x, f)),
    "tapped tree": lambda f, x: pj.tap(Box(x, f), lambda box: box.of()).value,
}
HOW = {
    "outside": lambda f: f,
    "jit": jax.jit,
    "twice": lambda f: jax.jit(lambda x: jax.jit(f)(x)),
    "vmap": lambda f: lambda x: jax.jit(jax.vmap(f))(jnp.stack([x]))[0],
    "vmap outside": lambda f: lambda x: jax.vmap(f)(jnp.stack([x]))[0],
    "scan": lambda f: jax.jit(lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, 1)[0]),
    "cond": lambda f: jax.jit(lambda x: jax.lax.cond(x >= 0, f, lambda v: v, x)),
    "compiled": lambda f: lambda x: jax.jit(f).lower(x).compile()(x),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", HOW)
def test_equal_functions(door, how):
    functions = [Equal(1), Equal(2), Equal(3)]
    for f in functions:
        HOW[how](lambda x, f=f: DOORS[door](f, x))(jnp.float32(0))
    pj.barrier()
    assert [f.got for f in functions] == [[1], [2], [3]]


@pytest.mark.parametrize("told", [False, True])
def test_equal_functions_in_one_program(told):
    first, second = Equal(1), Equal(2)
    f = lambda x: pj.call(first, F32, x) + 10 * pj.call(second, F32, x)
    assert (jax.jit(f) if told else f)(0.0) == 21


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_methods_that_are_made_at_each_access_count_their_firings(mode):
    class Two:
        def __init__(self):
            self.got, self.more = [], []

        def method(self, v):
            self.got.append(int(v))

        @pj.with_info
        def told(self, v, info):
            self.more.append(int(v))

    two, other, numbers = Two(), Two(), []
    for i in range(4):
        for fn in (two.method, two.told, other.method, other.told, numbers.append):
            pj.tap(np.int32(i), fn, every=2, mode=mode)
    pj.barrier()
    assert two.got == two.more == other.got == other.more == numbers == [0, 2]


def test_methods_of_one_object_are_several():
    numbers = [3.0, 4.0]
    count = functools.partial(pj.call, result_shape_dtypes=F32, effect="unordered")
    assert [count(numbers.pop), count(numbers.__len__), count([].__len__)] == [4, 1, 0]
    first, second = [], []
    for i in range(2):
        pj.tap(np.int32(i), first.append, every=2)
        pj.tap(np.int32(i), second.append, every=2)
    assert first == second == [0]

    def told(v, info=None):
        return np.float32(info is not None)

    f = lambda x: (pj.call(told, F32, x), pj.call(pj.with_info(told), F32, x))
    assert f(0.0) == jax.jit(f)(0.0) == (0, 1)


def test_numbers_that_are_equal_and_not_the_same():
    @dataclasses.dataclass(frozen=True)
    class Tell:
        value: object

        def __call__(self, *_):
            seen.append(repr(self.value))

    seen = []
    values = [1, True, 1.0, np.float32(1), 0.0, -0.0]
    for value in values:
        jax.jit(lambda x: pj.tap(x, Tell(value)))(1.0)
        pj.tap(1.0, Tell(value))
    pj.barrier()
    assert seen == [repr(v) for v in values for _ in range(2)]


# --- a parameter called `info`


def reward(obs, info):
    return np.float32(obs + info)


def with_default(obs, info=0.0):
    return np.float32(obs if isinstance(info, float) else -1)


def by_keyword(obs, *, info=0.0):
    return with_default(obs, info)


def wrapped(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args, info=0.0)

    return inner


class Called:
    def __call__(self, obs, info=0.0):
        return with_default(obs, info)

    def method(self, obs, info=0.0):
        return with_default(obs, info)


@pytest.mark.parametrize(
    "function, count",
    [
        (reward, 2),
        (with_default, 1),
        (by_keyword, 1),
        (wrapped(reward), 1),
        (functools.partial(reward, info=0.0), 1),
        (Called(), 1),
        (Called().method, 1),
        (lambda obs, info=0.0: with_default(obs, info), 1),
    ],
)
def test_a_parameter_of_the_users_own_called_info(function, count):
    wanted = 5.0 * count
    f = lambda x: pj.call(function, F32, *[x] * count)
    assert jax.jit(f)(5.0) == wanted and f(5.0) == wanted
    seen = []
    shows = functools.wraps(function)(lambda given: seen.append(function(*given)))
    jax.jit(lambda x: pj.tap((x,) * count, shows))(5.0)
    pj.tap((5.0,) * count, shows)
    pj.barrier()
    assert seen == [wanted] * 2
    postern.register("same.info", function, replace=True)
    assert jax.jit(lambda x: pj.call("same.info", F32, *[x] * count))(5.0) == wanted


def test_an_attribute_called_info():
    postern.register("same.attribute", lambda x, *, info: x + np.float32(info), replace=True)
    f = lambda x: pj.call("same.attribute", F32, x, attributes={"info": 2.0})
    assert jax.jit(f)(1.0) == 3
    postern.register("same.attribute", postern.with_info(lambda x, *, info: x), replace=True)
    with pytest.raises(postern.CallbackError, match="multiple values"):
        jax.jit(f)(1.0).block_until_ready()


def test_who_asks_is_told():
    class Asks:
        @pj.with_info
        def method(self, x, info):
            return x + len(info.site)

        @pj.with_info
        def __call__(self, x, info):
            return self.method(x, info=info)

    @pj.with_info
    def plain(x, info):
        """Adds."""
        return x + len(info.site)

    assert plain.__doc__ == "Adds." and plain.__name__ == "plain"
    for function in (plain, Asks().method):
        f = lambda x: pj.call(function, F32, x, name="four")
        assert jax.jit(f)(1.0) == 5 and f(1.0) == 5
    postern.register("same.told", plain, replace=True)
    assert jax.jit(lambda x: pj.call("same.told", F32, x, name="four"))(1.0) == 5


# --- texts


def raised_by(f):
    with pytest.raises(postern.CallbackError) as caught:
        jax.block_until_ready(f())
    return caught.value


def test_the_text_of_an_exception_chooses_no_error():
    texts = []

    def first(x):
        raise KeyError("of another program")

    def second(x):
        raise ValueError(text)

    numbers, look = [], postern._postern.guest_failure
    postern._postern.guest_failure = lambda number: (numbers.append(number), look(number))
    try:
        raised_by(lambda: jax.jit(lambda x: pj.call(first, F32, x))(1.0))
    finally:
        postern._postern.guest_failure = look
    assert numbers[0] > 2**32  # nobody writes it by chance
    for number in (1, 2, numbers[0], 2**64, 10**30):
        text = f"[postern failure {number}]"
        got = raised_by(lambda: jax.jit(lambda x: pj.call(second, F32, x))(1.0))
        assert isinstance(got.__cause__, ValueError) and text in str(got)
    for number in range(300):
        text = f"mine [postern failure {number}]"
        made = jax.errors.JaxRuntimeError(text)
        assert type(made) is jax.errors.JaxRuntimeError and str(made) == text


@pytest.mark.parametrize("effect", ["pure", "unordered", "ordered"])
def test_a_failure_after_runs_that_went_well(effect):
    def fails(x):
        if x > 1:
            raise KeyError("late")
        return x

    f = jax.jit(lambda x: pj.call(fails, F32, x, effect=effect))
    g = jax.jit(lambda x: f(x) + 1)
    for _ in range(3):
        assert f(1.0) == 1 and g(1.0) == 2
        for program in (f, g):
            got = raised_by(lambda: program(2.0))
            assert isinstance(got.__cause__, KeyError)
            assert isinstance(got, jax.errors.JaxRuntimeError) and "[postern" not in str(got)


# --- names that were not given for it


def test_a_class_called_as_pythons_capsules():
    class PyCapsule:
        def __call__(self, x):
            return x + 1

    PyCapsule.__module__ = "builtins"
    assert jax.jit(lambda x: pj.call(PyCapsule(), F32, x))(1.0) == 2
    postern.register("same.capsule", PyCapsule(), replace=True)
    assert jax.jit(lambda x: pj.call("same.capsule", F32, x))(1.0) == 2


def test_names_of_leaves_with_several_lines():
    stats = pj.listen.stats()
    tree = {"a\nb": jnp.float32(1), "c": jnp.float32(2), "d\ud800": jnp.float32(3)}
    jax.jit(lambda x: pj.tap(x, stats, name="t"))(tree)
    got = {s["path"]: s["points"][-1][1]["mean"] for s in stats.series()}
    assert got == {".a\\nb": 1, ".c": 2, ".d\\ud800": 3}


def test_names_of_functions_that_utf8_cannot_write():
    def odd(x):
        return x + 1

    odd.__name__ = "o\ud800d"
    assert jax.jit(lambda x: pj.call(odd, F32, x))(1.0) == 2
