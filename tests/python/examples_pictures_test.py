"""The programs that learn to tell pictures apart, on few and small ones that the test makes."""
import numpy as np
import programs

from outboard import png


def test_beautiful_mnist(tmp_path):
    fashion = programs.fashion_files(tmp_path)
    said = programs.summary("beautiful_mnist.py", "--steps", 25, "--batch", 32, "--seed", 1, environment=fashion)
    assert said["steps"] == 25 and said["accuracy"] > 60
    programs.run("beautiful_mnist.py", "--steps", 1, "--batch", 8, "--target-accuracy", 99, environment=fashion, code=1)


def test_cifar_resnet(tmp_path):
    random = np.random.default_rng(1)
    for part, count in (("train", 24), ("test", 10)):
        for channel, name in enumerate(("red", "green", "blue")):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(count):
                picture = random.integers(0, 160, (16, 16, 3)).astype(np.uint8)
                picture[:, :, channel] += 80
                png.write(tmp_path / part / name / f"{i}.png", picture)
    said = programs.summary("cifar_resnet.py", tmp_path, "--steps", 30, "--batch", 24, "--width", 4, "--seed", 1)
    assert said["accuracy"] > 80
    (tmp_path / "test" / "mauve").mkdir()
    assert "mauve" in programs.run("cifar_resnet.py", tmp_path, code=1).stderr
